"""A load: jobs in the order in which they come, and the kinds that they are of. Made by a generator, or recorded.

A kind is a task that recurs, or a sort of job: what its user declares (`Kind`), and what is true of it and not shown
(`Truth`). README.md says what the fields mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from ...runtime.files import open_regular, write_whole
from . import table as t

FORMAT = 1


@dataclass(frozen=True)
class Phase:
    """Part of a job's work, and what it demands meanwhile. use: of a core's time, for each core; demand: of the loop's
    receive share, transmit share, memory and budget, for each core, in the units of the world's capacity."""

    part: float = 1.0
    use: float = 1.0
    demand: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Kind:
    """What jobs of a kind have in common.

    Declared, and shown to policies: all to loss_target; and serial, sync and spread, unless declared_scaling is False.
    The rest is true of its jobs, and not shown.
    """

    cls: int = 0
    min_cores: int = 1
    max_cores: int = 1
    guaranteed: bool = True
    recurs: bool = True
    stages: tuple[float, ...] = ()
    switch_ns: int = 0
    memory_floor: float = 1.0
    max_batch: float = 1.0
    batch_fixed_ns: int = 0
    batch_item_ns: int = 0
    limit_ns: int = 0
    loss_target: float = 0.0
    serial: float = 0.0
    sync: float = 0.0
    spread: float = 0.0
    declared_scaling: bool = True
    noise: float = 0.0
    loss_floor: float = 0.0
    loss_scale: float = 0.0
    phases: tuple[Phase, ...] = (Phase(),)


@dataclass(frozen=True)
class Load:
    """jobs: rows of table.LOAD, ascending in time. said: where it comes from, for a document; its seed is in it."""

    kinds: tuple[Kind, ...]
    jobs: Any
    said: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.kinds, self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def tables(self) -> tuple[Any, Any]:
        """Of its kinds, rows of table.KIND and of table.TRUTH. Who writes into them takes a copy."""
        return declared(self.kinds), truth(self.kinds)

    @property
    def classes(self) -> Any:
        """Of each job, the class of its kind."""
        return np.array([kind.cls for kind in self.kinds], np.int64)[self.jobs["kind"]]


def jobs(
    at_ns: Any, work_ns: Any, kind: Any = 0, deadline_ns: Any = 0, weight: Any = 1.0, declared_ns: Any = 0.0
) -> Any:
    """Rows of table.LOAD from columns or single values. deadline_ns: after the arrival; 0: none."""
    out = np.zeros(len(at_ns), t.LOAD)
    out["at_ns"], out["work_ns"], out["kind"] = at_ns, work_ns, kind
    out["deadline_ns"], out["weight"], out["declared_ns"] = deadline_ns, weight, declared_ns
    return out


def declared(kinds: Sequence[Kind]) -> Any:
    """Rows of table.KIND."""
    out = np.zeros(len(kinds), t.KIND)
    for row, kind in zip(out, kinds, strict=True):
        for name in t.KIND.names or ():
            if name == "stage":
                row["stage"][: len(kind.stages)] = kind.stages
            elif name == "stages":
                row["stages"] = len(kind.stages)
            elif name in ("serial", "sync", "spread") and not kind.declared_scaling:
                row[name] = -1.0
            else:
                row[name] = getattr(kind, name)
    return out


def truth(kinds: Sequence[Kind]) -> Any:
    """Rows of table.TRUTH."""
    out = np.zeros(len(kinds), t.TRUTH)
    for row, kind in zip(out, kinds, strict=True):
        for name in ("serial", "sync", "spread", "noise", "loss_floor", "loss_scale"):
            row[name] = getattr(kind, name)
        row["phases"] = len(kind.phases)
        for i, phase in enumerate(kind.phases):
            row["part"][i], row["use"][i] = phase.part, phase.use
            row["demand"][i * t.N_RESOURCES : (i + 1) * t.N_RESOURCES] = phase.demand
    return out


def _refuse(why: str, hint: str) -> CorelaneError:
    return CorelaneError("use this load", why, hint)


def _check(kinds: Sequence[Kind], rows: Any) -> None:
    """CorelaneError for what cannot be."""
    if not kinds or not len(rows):
        raise _refuse("it has no jobs", "give at least one kind and one job")
    for i, kind in enumerate(kinds):
        _check_kind(f"kind {i}", kind)
    if (np.diff(rows["at_ns"]) < 0).any() or rows["at_ns"][0] < 0:
        raise _refuse("its jobs are not in the order of their arrival", "sort them by at_ns, from 0 on")
    if rows["kind"].min() < 0 or rows["kind"].max() >= len(kinds):
        raise _refuse(f"a job is of a kind that is not there; there are {len(kinds)}", "count kinds from 0")
    for name, least in (("work_ns", 1.0), ("weight", 1e-9), ("deadline_ns", 0), ("declared_ns", 0.0)):
        if not np.isfinite(rows[name]).all() or (rows[name] < least).any():
            raise _refuse(f"a job's {name} is {rows[name].min():g}", f"at least {least:g}")


def _check_kind(name: str, kind: Kind) -> None:
    if not 0 <= kind.cls < t.MAX_CLASSES:
        raise _refuse(f"{name} is of class {kind.cls}", f"classes are 0 to {t.MAX_CLASSES - 1}")
    if not 1 <= kind.min_cores <= kind.max_cores:
        raise _refuse(f"{name} wants {kind.min_cores} to {kind.max_cores} cores", "at least 1, in this order")
    if len(kind.stages) > t.MAX_STAGES or (kind.stages and min(kind.stages) <= 0):
        raise _refuse(f"{name} has stages {kind.stages}", f"up to {t.MAX_STAGES} parts of its work, above 0")
    if kind.stages and not (kind.min_cores == kind.max_cores == len(kind.stages)):
        raise _refuse(f"{name} has {len(kind.stages)} stages on {kind.min_cores} cores", "one core for each stage")
    if not 1 <= len(kind.phases) <= t.MAX_PHASES or not math.isclose(sum(p.part for p in kind.phases), 1.0):
        raise _refuse(f"the phases of {name} are not parts of a whole", f"1 to {t.MAX_PHASES} that sum to 1")
    for phase in kind.phases:
        if not 0 < phase.use <= 1 or phase.part <= 0 or min(phase.demand) < 0:
            raise _refuse(f"{name} has {phase}", "use in (0, 1], a part above 0, demands of 0 or more")
    if kind.batch_item_ns and (kind.max_cores > 1 or len(kind.phases) > 1):
        raise _refuse(f"{name} runs in batches on several cores, or in phases", "one core and one phase")
    if not 0 <= kind.serial < 1 or kind.sync < 0 or kind.spread < 0 or kind.max_batch < 1:
        raise _refuse(f"{name} scales in a way that cannot be", "serial in [0, 1), sync and spread 0 or more")


def write(path: str | Path, load: Load) -> None:
    """Into a file of numpy's format (.npz), which holds nothing that runs."""
    import io
    import json
    from dataclasses import asdict

    about = json.dumps({"format": FORMAT, "kinds": [asdict(k) for k in load.kinds], "said": load.said})
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.frombuffer(about.encode(), np.uint8), jobs=load.jobs)
    write_whole(Path(path), buffer.getvalue())


def read(path: str | Path) -> Load:
    """A load that was written. CorelaneError with the reason if it is none."""
    import json

    try:
        with open_regular(path) as held, np.load(held, allow_pickle=False) as file:
            about, rows = json.loads(bytes(file["about"])), file["jobs"]
        if about["format"] != FORMAT or rows.dtype != t.LOAD:
            raise ValueError(f"it is of format {about['format']}, and this version reads {FORMAT}")
        kinds = tuple(
            Kind(**{**k, "stages": tuple(k["stages"]), "phases": tuple(_phase(p) for p in k["phases"])})
            for k in about["kinds"]
        )
        return Load(kinds, rows, about["said"])
    except CorelaneError:
        raise
    except OSError as error:
        raise CorelaneError(f"read the load {path}", error.strerror or str(error), "name a load file") from error
    except Exception as error:  # whatever numpy, zipfile and zlib stumble over in a file of somebody's
        raise CorelaneError(
            f"read the load {path}", f"it is no load file: {error}", "see corelane lab record"
        ) from error


def _phase(row: dict[str, Any]) -> Phase:
    part, use, demand = row["part"], row["use"], row["demand"]
    receive, transmit, memory, budget = demand
    return Phase(part, use, (receive, transmit, memory, budget))
