"""The persistent log: records, durable in order, on an area of a block device, without a file system in the way.

    log.c append.c     the log as an object; records, flushes, acknowledgement (contract: corelane/libos/log.h)
    width.{h,c}        how many flushes are in flight at once
    disk.h super.c     what lies on the device; superblocks
    snapshot.c grow.c confirm.c   snapshots; a larger area; having the device confirm what was acknowledged
    repack.c           copying what is kept to the end of the ring, so that what lies between is free
    recover.{h,c} choose.c lap.c judge.c again.c   opening: superblock, flushes in order, what ended them
    view.c cursor.c    what is durable; reading records by index
    shared.c           for uthreads: each blocks until its record is durable (corelane/libos/log_shared.h)
    log.py group.py promise.py report.py cut.py shared.py   the log from Python: start at log.py

Threads: one at a time is inside calls on a log; shared.c takes a lock. Invariant: what was acknowledged is read back
after any crash, or the log says at which offset it is damaged. Start reading at include/corelane/libos/log.h.
docs/log.md has the format and what it does not promise.
"""
