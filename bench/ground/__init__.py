"""What TCP and event loops stand on: `corelane bench ground`.

    ground.py           the benchmark: its arms, one file each, in turn
    virtual_speed.py    how fast two hosts run on a virtual clock
    exchange.{h,c}      the uthreads that send to an echo server at a rate, and take the answers

An arm is a module with `measure(session, seconds)`: it measures for about `seconds`, adds rows, and sets its figures.
Start reading at ground.py.
"""
