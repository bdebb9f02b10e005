"""Storage on uthreads.

    io.{h,c}       reads, writes and flushes of a block device by uthreads that wait for them
    crc32c.{h,c}   the checksum, by the processor's instructions where it has them
    log/           the persistent log

Start reading at io.h. How completions reach uthreads: corelane/libos/complete.h.
"""
