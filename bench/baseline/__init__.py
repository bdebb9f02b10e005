"""What corelane is measured against: servers on the kernel's own sockets.

  memcached.py     stock memcached, if it is installed
  sockets.py       UDP echo, and the store, behind a UDP socket in C (linux_udp.c): a thread here, or a process
                   also a NIC over a kernel socket (socket_nic.c), by which the load generator needs no root
  asyncio_echo.py  an asyncio UDP echo server in a process

All are context managers with the address they serve on; `missing()` says in one line why one cannot be had.
"""
