"""corelane.bench.packetdrill: tests written as scripts of packets in and out, in packetdrill's published syntax.

What this package owns
    model.py       a script as data: events, packets, calls, expressions
    tokens.py      text to words; parse.py: words to a script; text.py: a script, or a packet that came, to text
    symbols.py     the names that scripts use for numbers
    code.py        assertions about TCP_INFO in %{ }%, evaluated without running anybody's code
    commands.py    the shell commands that we know a meaning of
    wire.py        packets as bytes
    flow.py        a connection's addresses and numbers: the script's and those on the wire
    compare.py     what was expected, and what came
    stack.py       what a stack under test offers; linux.py: the kernel's; corelane.py: ours, with its sockets, their
                   options and sysctls in corelane_*.py
    calls.py       the script's system calls on that; arguments.py: what they are given
    run.py         executes one script on one stack; suite.py: many scripts, and what they say

Invariants
    A script runs no code of its own: commands and assertions are understood, or refused by name. Nothing here knows
    which stack is tested but linux.py and corelane.py. A runner that was late says so, and does not blame the stack.

Threads: none but those that calls which may block wait in (linux.py). Where to start reading: run.py.
"""
