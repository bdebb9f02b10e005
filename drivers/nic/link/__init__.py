"""What networks do to frames, around one NIC or between two: rate and queue, priorities, ECN, loss, delay, reordering.

    link.h            the rules of a path, one direction of a link; the C interface
    link.py wire.py   the Python faces: Link, LinkNic; Wire
    store.{h,c}       frames in the path's own memory
    queue.{h,c}       priorities, tail drop, ECN threshold, the line's rate
    mark.h loss.h     class and mark of a frame; loss in bursts
    flight.{h,c}      delay, jitter, reordering by distance
    path.{h,c}        these put together
    nic.c             paths around another NIC
    wire.{h,c}        two NICs back to back
    pump.c            the thread that moves a wire; closing it

Invariants: every frame is delivered, in the path, or dropped under a reason; equal seeds, times and frames give equal
fates.
Start reading at link.h, then path.c.
"""
