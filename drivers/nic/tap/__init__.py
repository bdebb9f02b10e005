"""TAP devices: a wire to this host's own network stack, for machines and containers without XDP.

    tap.py           the NIC and the interface's set-up
    tap.c            the data path, one system call a frame (corelane/drivers/tap.h)
    segments.{h,c}   datagrams of one flow as one super-frame (UDP segmentation offload), both ways

Threads: none; one queue. Start reading at include/corelane/drivers/tap.h.
"""
