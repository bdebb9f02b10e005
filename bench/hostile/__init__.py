"""`corelane bench hostile`: an application's tail, and how long another one takes to attach, beside an attacker.

hostile.py    the benchmark: start here
judge.py      its figures
attacks.py    what an attacker does, a function each
attacker.py   the attacker, and who attaches in all honesty, in processes of their own
"""
