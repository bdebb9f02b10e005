"""What a policy sees, and what it does not: the rows of the tables as numpy dtypes. README.md says what fields mean.

All fields are 8 bytes: int64 or float64. Times are ns of the simulated (or the machine's) clock. `VIEW`, `JOB`, `CORE`
and `KIND` are what a policy is given. `LOAD`, `TRUTH` and `HIDDEN` are the world's own; `FUTURE` is given to oracles.
"""

from __future__ import annotations

import numpy as np

MAX_CLASSES, MAX_LOOPS, MAX_STAGES, MAX_PHASES = 16, 16, 8, 4
# Resources of a loop beside the time of its cores.
RECEIVE, TRANSMIT, MEMORY, BUDGET = 0, 1, 2, 3
N_RESOURCES = 4
JOB_MEMORY, CORE_MEMORY = 8, 4

# Why a policy is called: `view.event`.
TICK, ARRIVED, DONE, QUANTUM, PHASE, WOKEN = 0, 1, 2, 3, 4, 5
# `job.state`.
FREE, WAITING, RUNNING = 0, 1, 2
# `job.promised`: PROMISED is the policy's word that the deadline will be kept; see acts.refuse.
PROMISED, REFUSED = 1, -2
# `view.astray`: it gave a core that is not there; it looked beyond the end of a table.
NO_CORE, NO_ROW = 1, 2

_I, _F = np.int64, np.float64


def _row(*fields: tuple[object, ...]) -> np.dtype[np.void]:
    return np.dtype([field if len(field) > 1 else (field[0], _I) for field in fields])


VIEW = _row(
    ("now_ns",),
    ("event",),
    ("job",),
    ("core",),
    ("n_jobs",),
    ("first",),
    ("last",),
    ("n_waiting",),
    ("waiting", _I, (MAX_CLASSES,)),
    ("waiting_last", _I, (MAX_CLASSES,)),
    ("waiting_of", _I, (MAX_CLASSES,)),
    ("n_cores",),
    ("n_loops",),
    ("n_kinds",),
    ("n_classes",),
    ("room",),
    ("idle",),
    ("n_idle",),
    ("interval_ns",),
    ("switch_ns",),
    ("move_ns",),
    ("pair_speed", _F),
    ("capacity", _F, (N_RESOURCES,)),
    ("used", _F, (MAX_LOOPS * N_RESOURCES,)),
    ("changed",),
    ("n_refused",),
    ("wake_ns",),
    ("random",),
    ("n_memory",),
    ("n_params",),
    ("astray",),
)

JOB = _row(
    ("id",),
    ("kind",),
    ("cls",),
    ("state",),
    ("arrived_ns",),
    ("since_ns",),
    ("deadline_ns",),
    ("weight", _F),
    ("cores",),
    ("first_core",),
    ("next",),
    ("before",),
    ("after",),
    ("ahead",),
    ("tail_core",),
    ("phase",),
    ("as_of_ns",),
    ("held_of_ns",),
    ("progress_ns", _F),
    ("rate", _F),
    ("attained_ns", _F),
    ("use", _F),
    ("demand", _F, (N_RESOURCES,)),
    ("declared_ns", _F),
    ("loss", _F),
    ("noise", _F),
    ("preempted",),
    ("batch", _F),
    ("alloc", _F, (N_RESOURCES,)),
    ("promised",),
    ("memory", _F, (JOB_MEMORY,)),
)

CORE = _row(
    ("core",),
    ("pair",),
    ("loop",),
    ("job",),
    ("stage",),
    ("next",),
    ("before",),
    ("next_idle",),
    ("idle_before",),
    ("last_job",),
    ("since_ns",),
    ("speed", _F),
    ("want",),
    ("changed",),
    ("quantum_ns",),
    ("pace", _F),
    ("share", _F),
    ("part", _F),
    ("take",),
    ("memory", _F, (CORE_MEMORY,)),
)

KIND = _row(
    ("cls",),
    ("min_cores",),
    ("max_cores",),
    ("guaranteed",),
    ("recurs",),
    ("stages",),
    ("stage", _F, (MAX_STAGES,)),
    ("serial", _F),
    ("sync", _F),
    ("spread", _F),
    ("switch_ns",),
    ("memory_floor", _F),
    ("max_batch", _F),
    ("batch_fixed_ns",),
    ("batch_item_ns",),
    ("limit_ns",),
    ("loss_target", _F),
)

# A job of a load file: when it comes (ascending), how long a core of speed 1 takes for it alone.
LOAD = _row(
    ("at_ns",),
    ("work_ns", _F),
    ("kind",),
    ("deadline_ns",),
    ("weight", _F),
    ("declared_ns", _F),
)

# Of a kind, and not shown: how it really scales, its phases, how its loss falls.
TRUTH = _row(
    ("serial", _F),
    ("sync", _F),
    ("spread", _F),
    ("noise", _F),
    ("loss_floor", _F),
    ("loss_scale", _F),
    ("phases",),
    ("part", _F, (MAX_PHASES,)),
    ("use", _F, (MAX_PHASES,)),
    ("demand", _F, (MAX_PHASES * N_RESOURCES,)),
)

# Of a live job, and not shown. burn: cores' worth of time that it takes now.
HIDDEN = _row(
    ("total_ns", _F),
    ("phase_end_ns", _F),
    ("burn", _F),
    ("behind_ns", _F),
    ("last_core",),
    ("last_loop",),
    ("dirty",),
    ("riders",),
)

# What became of a job, a row for each of the load. outcome: see below. attained_ns: core time held.
RESULT = _row(
    ("outcome",),
    ("start_ns",),
    ("finish_ns",),
    ("attained_ns", _F),
    ("preempted",),
    ("promised",),
)
NOT_OVER, OVER, TURNED_AWAY, NO_ROOM = 0, 1, 2, 3

# Of a live job, for oracles alone.
FUTURE = _row(("total_ns", _F), ("remaining_ns", _F))
