"""Finds the benchmarks. Importing this imports none of them: a listing must not cost numpy or numba.

A benchmark is a module of this package, NAME.py or NAME/NAME.py, whose first lines assign SUMMARY (a string literal)
and FIGURES (a tuple of string literals); see the package's docstring.
"""

from __future__ import annotations

import ast
import functools
import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ..runtime.errors import CorelaneError
from .harness.goals import GOALS

# Left out of `corelane bench all`: it repeats others for show.
SHOWS = frozenset({"demo"})


@dataclass(frozen=True)
class Entry:
    """A benchmark's name, its one-line summary and the figures that it must set or excuse."""

    name: str
    summary: str
    figures: tuple[str, ...]
    module: str

    def load(self) -> ModuleType:
        """Import the benchmark."""
        return importlib.import_module(f"{__package__}.{self.module}")


@functools.cache
def _declared(path: Path) -> dict[str, object]:
    """SUMMARY and FIGURES of a source file, read without running it."""
    out: dict[str, object] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        if name in ("SUMMARY", "FIGURES"):
            out[name] = ast.literal_eval(value)
    return out


def entries() -> dict[str, Entry]:
    """Every benchmark by name, sorted."""
    found: dict[str, Entry] = {}
    here = Path(__file__).parent
    rooms = [room / f"{room.name}.py" for room in here.iterdir() if (room / f"{room.name}.py").exists()]
    for path in sorted([*here.glob("*.py"), *rooms]):
        name, module = path.stem, ".".join(path.relative_to(here).with_suffix("").parts)
        if name.startswith("_") or name == "registry":
            continue
        declared = _declared(path)
        if "SUMMARY" in declared:
            figures = declared.get("FIGURES", ())
            assert isinstance(figures, tuple)
            found[name] = Entry(name, str(declared["SUMMARY"]), figures, module)
    return dict(sorted(found.items()))


def find(name: str) -> Entry:
    """The benchmark of that name, also with a hyphen as its figures have it; CorelaneError if there is none."""
    every = entries()
    found = every.get(name.replace("-", "_"))
    if found is None:
        raise CorelaneError(f"there is no benchmark named {name!r}: choose one of {', '.join(every)}, or all")
    return found


def bench_of_figure(figure: str) -> str | None:
    """The benchmark that sets a figure, or None."""
    assert figure in GOALS, figure
    return next((e.name for e in entries().values() if figure in e.figures), None)
