"""The iokernel's control thread: who may attach, what each application gets, what is counted.

    server.py       the thread: waits for what happens, and has each of these do its part (protocol: runtime/control.h)
    listener.py     who may connect, and what is done when there is no room for one more
    callers.py accept.c   who came, without those that have gone already
    connections.py  connections that are open: receiving, sending, how long each has for it
    turns.py        whose messages are handled when: registrations first, and users within their shares
    multiplexer.py  what the thread waits for, and users who are held back
    requests.py     requests by kind, and the answers about statistics and moves
    registrations.py policy_requests.py area_requests.py trace_requests.py   those about applications, the policy,
        storage areas, traces. traces.py: who may have one, and opening it
    registry.py     what all these need of an iokernel
    messages.py     messages as bytes
    descriptors.py  descriptors whose closing may take long, which no thread waits for that others need
    lock.py         a socket path belongs to one iokernel
    settings.py     options of an Iokernel, in groups
    admission.py    what an application gets that wants to attach, or why it is refused
    applications.py apps.py   those that are attached: registering, managing and removing them; what one got
    addresses.py    MAC and IPv4 of an application, and those that nobody gets by asking
    users.py        which names a user may use, and how much his applications may have together
    kthreads.py     whether the threads that an application names may be managed
    cores.py manager.py   what an application may claim of the cores; which policy decides
    deadlines.py promises.py progress.py filling.py   batch work with a deadline: asking for it; who is admitted and
                    what becomes of it; how fast it goes; which shares of the cores keep all deadlines
    elastic.py memory.py resident.py   memory that batch work can give back: what each may hold, and who does not shrink
    claims.py       which CPUs other iokernels of this machine use
    lingering.py    applications that were killed and have not ended
    statistics.py report.py moves.py   statistics as JSON, and each part of them; the log of moves
    worker.py jobs.py   slow functions on threads of their own: one at a time; several users'

Threads: one. It waits for nobody. Calls go down: server.py -> requests.py -> policy_requests.py, area_requests.py,
trace_requests.py, registrations.py -> connections.py; deadlines.py -> promises.py -> progress.py, filling.py. What one
below needs of one above comes as an argument (`ended`, `make_room`, `charge`). Start reading at server.py.
"""
