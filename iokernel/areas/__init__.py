"""Storage areas: parts of a disk that applications are given by name, and then use without the iokernel.

    areas.py        the areas of an iokernel: making, opening, growing, deleting; who may
    device.py       areas on a raw device, each one extent
    table.py        the table at the start of such a device: two copies, each with a checksum
    operations.py   what the control thread knows of all this

Threads: the control thread's jobs (iokernel/control/jobs.py), of which none waits for another. Invariant: no claimant
reaches beyond its area, and an area has one claimant at a time. Start reading at areas.py; docs/storage.md is the page
for users.
"""
