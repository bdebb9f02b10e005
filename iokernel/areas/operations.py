"""What the control thread has to know of operations on areas, without loading what carries them out."""

from __future__ import annotations

from ...runtime.errors import Refused
from .._native import lib

WRITING = frozenset((lib.CL_CONTROL_AREA_CREATE, lib.CL_CONTROL_AREA_GROW))
"""Those that take as long as writing what they make."""


class Busy(Refused):
    """Somebody has the area at this moment, and perhaps only for this one: what a process has open goes a moment after
    it was killed, and it may start again at once. Whoever can wait asks again."""
