"""The iokernel's control thread: who may attach, what each application gets, what is counted.

    server.py       the control socket: handshake, requests, refusals (protocol: runtime/control.h)
    messages.py     messages as bytes
    descriptors.py  descriptors whose closing may take long, which no thread waits for that others need
    lock.py         a socket path belongs to one iokernel
    settings.py     what the configuration says of applications
    addresses.py    MAC and IPv4 of an application, and those that nobody gets by asking
    users.py        which names a user may use, and how much his applications may have together
    kthreads.py     whether the threads that an application names may be managed
    cores.py manager.py   what an application may claim of the cores; which policy decides
    lingering.py    applications that were killed and have not ended
    report.py moves.py    statistics as JSON; the log of moves
    worker.py jobs.py   slow functions on threads of their own: one at a time; several users'

Threads: one. It waits for nobody. Start reading at server.py.
"""
