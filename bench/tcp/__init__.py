"""`corelane bench tcp`: TCP beside UDP and beside Linux' TCP.

tcp.py               the benchmark: start here
links.py             what is measured on: a memory link, an iokernel, a veth pair
server.{h,c,py}      our servers, in event form; blocking.c: in blocking form
requests.py          over the memory NIC: beside UDP, at 1 to 10 000 connections, attached
veth.py              over AF_XDP on a veth pair, beside Linux' TCP, with an AF_XDP and a kernel client
wire.py              over a wire that loses, and on a link that is shared with Linux
attack.py            a client beside attackers
lwip.py              lwIP on the same NIC
bulk.py              bytes without end; churn.py: connections that come and go; idle.py: that say nothing

The client is drivers/nic/tcpload; Linux' servers and its client are bench/baseline/linux_tcp*.
"""
