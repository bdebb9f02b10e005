"""When a run is judged: only where the machine left the measured cores to it.

The canary tells what part of each core was lost to others while the run lasted. On machines that nobody disturbed that
was 0.6 to 2.6 %, which is the kernel's tick (docs/notebook). A host that gives cores to others takes 5 to 30 %, and
then ratios say what it took and not what the program does: `isolation` was once 37 on such a host and 1.1 on a quiet
one. So where a core lost more than LOST_BOUND no figure of the run is judged. The values stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOST_BOUND = 0.05


def lost(canary: Mapping[str, Any]) -> float:
    """The largest part that a core lost, of the "canary" member of a document; 0 without one."""
    return max((float(core["lost_fraction"]) for core in canary.get("cores", ())), default=0.0)


def why_not(canary: Mapping[str, Any]) -> str:
    """Why the figures of a run are not judged; "" if they are."""
    part = lost(canary)
    if part <= LOST_BOUND:
        return ""
    return f"the machine took {100 * part:.2g} % of a core meanwhile, more than {100 * LOST_BOUND:.2g} %"


def withhold(figures: Mapping[str, dict[str, Any]], why: str) -> dict[str, dict[str, Any]]:
    """Figures without a verdict on those that have a value, and the reason."""
    return {
        name: fig if fig["value"] is None else {**fig, "met": None, "reason": f"not judged: {why}"}
        for name, fig in figures.items()
    }


def first_line(bench: str, canary: Mapping[str, Any]) -> str:
    """What a report of a run that is not judged begins with; "" if it is judged."""
    why = why_not(canary)
    if not why:
        return ""
    return f"NOT JUDGED: {why}. Repeat it, or let it wait for quieter rounds: corelane bench {bench} --patient 300"
