"""What the tests share: building C programs, network namespaces, waiting for a condition.

Importable as `cltest` (pytest's `pythonpath` points here), since under `--import-mode=importlib` test modules cannot
import each other. `tests/conftest.py` makes fixtures of it.

    from cltest import wait_until
    wait_until(lambda: stats().rx_frames == 100, 60.0, "100 frames to arrive")
"""

from .cbuild import CBuild, CompileError, ProgramFailed
from .children import die_with_parent, may_raise_limits, sleeping_threads, stop_process
from .descriptors import open_descriptors
from .netns import Namespace, NetnsFactory, netns_missing
from .waiting import answered, wait_until

__all__ = [
    "CBuild",
    "CompileError",
    "Namespace",
    "NetnsFactory",
    "ProgramFailed",
    "answered",
    "die_with_parent",
    "may_raise_limits",
    "netns_missing",
    "open_descriptors",
    "sleeping_threads",
    "stop_process",
    "wait_until",
]
