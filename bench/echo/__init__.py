"""`corelane bench echo`: what the least that a server can do costs.

echo.py    the benchmark: start here
modes.py   a server in each polling mode on each link: system calls and context switches a request
"""
