"""How a kthread whose thread sleeps in an epoll of its own parks, as a program for `tso`.

`word` is the park word, `work` what there is to do, `fd` the descriptor, readable while it is not 0. What a turn does
is libos/sched/idle.c (cl_park_kthread, cl_rise) and libos/sched/wakefd.c. KTHREAD is all of it in a loop; tests put
more between the parts, and leave instructions out.
"""

from __future__ import annotations

from typing import Any

from tso import View

TAKE = [("exchange", "fd", 0, "calls")]  # read() of the eventfd
SET_WORD = ["park", ("store", "word", 1), ("fence",)]  # cl_park_begin
LOOK = [  # cl_work_visible
    ("load", "work", "seen"),
    ("if", "seen", "==", 0, "sleep"),
    ("store", "word", 0),  # cl_park_cancel
    ("goto", "work"),
]
SLEEP = [
    "sleep",
    ("choose", "turn"),  # another descriptor of the loop was readable
    ("wait", "fd", 0),
    "turn",  # cl_rise; each so many turns it first takes what a waker has written late (cl_wakefd_look)
    ("choose", "look"),
    *TAKE,
    "look",
    ("load", "work", "seen"),
    ("if", "seen", "==", 1, "rise"),
    ("load", "word", "now"),
    ("if", "now", "==", 0, "rise"),
    ("goto", "sleep"),
]
RISE = [
    "rise",
    ("exchange", "word", 0, "was"),
    ("if", "was", "==", 1, "work"),
    *TAKE,
]
WORK = [
    "work",
    ("exchange", "work", 0, "seen"),
    ("goto", "park"),
]
KTHREAD = [*SET_WORD, *LOOK, *SLEEP, *RISE, *WORK]


def wake(called: list[Any], end: str = "end") -> list[Any]:
    """cl_park_wake, after work was published. called: what is done about a kthread that sleeps. Needs a label `end`."""
    return [
        ("store", "work", 1),
        ("fence",),
        ("load", "word", "seen"),
        ("if", "seen", "==", 0, end),
        ("exchange", "word", 0, "was"),
        ("if", "was", "==", 0, end),
        *called,
    ]


def idle(v: View) -> bool:
    """All work is done, and the descriptor says so."""
    return v.drained and v.memory["work"] == 0 and v.memory["fd"] == 0
