"""`corelane bench afxdp`: UDP echo over AF_XDP on a veth pair, beside a reflector without libos, and Linux.

afxdp.py             the benchmark: start here
reflector.{h,c,py}   the floor: an AF_XDP socket that sends each datagram back, and nothing else
"""
