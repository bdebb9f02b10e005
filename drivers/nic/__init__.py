"""NICs: what every driver implements (corelane/drivers/nic.h), and the drivers.

    nic.c nic.py         calls through the vtable; the Python face `Nic` that every constructor returns
    single.{h,c}         what NICs of one queue share
    memory.{c,py}        a link with two ends in one process, zero copy
    fault.{h,c,py}       a bad wire around another NIC: loss, duplicates, reordering, delay, corruption, from a seed
    link/                a rate, queues, losses, delays: around a NIC, or as a wire between two
    joined.{h,c,py}      several NICs of one queue as one with a queue each
    pcap.{h,c,py} replay.c   records another NIC to a file; plays a file as a NIC
    wrap.py              fault and recorder around a NIC, by what a command line or a configuration says
    af_xdp/ tap/ loadgen/ tcpload/   drivers of several files

Invariants: see drivers/__init__.py. A new driver is one file, or one folder, and passes tests/drivers/nic/test_nic.py
unchanged. Start reading at memory.c.
"""
