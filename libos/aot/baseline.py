"""For which processors code is compiled: a level of the architecture, not the processor that is here.

numba asks once what it compiles for: `choose` is called before numba is imported. Importing this does not import it.
"""

from __future__ import annotations

import os
import platform
import sys

from ...runtime.errors import CorelaneError

# The levels of the x86-64 psABI; what LLVM calls each of them. The first one is the default.
_LEVELS = {
    "x86_64": {name: name for name in ("x86-64-v2", "x86-64", "x86-64-v3", "x86-64-v4")},
    "aarch64": {"armv8-a": "generic"},
}
LEVELS = _LEVELS.get(platform.machine(), {})


def choose(level: str | None) -> str:
    """Have numba compile for a level, None: the default. Its name. Raises CorelaneError: there is none of that name, or
    numba compiles for another one already."""
    if not LEVELS:
        raise CorelaneError("compile ahead of time", f"there is no code for {platform.machine()}")
    name = level or next(iter(LEVELS))
    if name not in LEVELS:
        raise CorelaneError("compile ahead of time", f"there is no level {name}", f"one of: {', '.join(LEVELS)}")
    if "numba" not in sys.modules:
        # numba reads this when it is imported. SVML is a library of Intel's, which other machines may not have.
        os.environ |= {"NUMBA_CPU_NAME": llvm_name(name), "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_INTEL_SVML": "1"}
    from numba.core import config

    if llvm_name(name) != config.CPU_NAME or not config.DISABLE_INTEL_SVML:
        hint = "do it in a process of its own: corelane compile"
        raise CorelaneError("compile ahead of time", "numba compiles for this processor here", hint)
    return name


def llvm_name(level: str) -> str:
    """What LLVM calls it."""
    return LEVELS[level]
