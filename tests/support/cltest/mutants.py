"""Faults put into C sources that a model compiles itself, all of them in one program, of which an argument chooses one.

The model's program includes its sources by names of macros. `Sources` has those macros. A fault is a `Mutant`. The
program of all mutants is as large as that of the code as it is, so a test of one fault costs a run and no compilation.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from .cbuild import ROOT, ProgramFailed, setup_py

Program = Callable[..., Callable[..., str]]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault: `old`, which is there once, becomes `new`: statements if old ends with ';', else an expression.

    macro: of the source that it is in. scenario: of the model, in which it shows, with `options`. soak: it takes long.
    also: what else of that source changes with it, old and new.
    """

    macro: str
    old: str
    new: str
    scenario: str
    options: str = ""
    soak: bool = False
    also: tuple[tuple[str, str], ...] = ()

    def put_into(self, text: str, variable: str, number: int) -> str:
        """The source with both, of which the variable chooses."""
        for old, new in ((self.old, self.new), *self.also):
            assert text.count(old) == 1, f"the code of {old!r} has changed: mend the mutant"
            if old.endswith(";"):
                both = f"{{ if ({variable} == {number}) {{ {new} }} else {{ {old} }} }}"
            else:
                both = f"({variable} == {number} ? ({new}) : ({old}))"
            text = text.replace(old, both)
        return text


@dataclasses.dataclass(frozen=True)
class Model:
    """A program that compiles sources of the library itself, so that it may explore them.

    program: its path. own: macro -> source that it includes by that name. replaced: sources that it has its own of.
    variable: of the program, which is the number of the fault in its argument `mutant=N`. options: of mutants without.
    """

    program: str
    own: Mapping[str, str]
    flags: tuple[str, ...]
    mutants: Mapping[str, Mutant]
    variable: str
    replaced: Iterable[str] = ()
    options: str = ""

    def sources(self) -> list[Path]:
        """The rest of the library."""
        left_out = {*self.own.values(), *self.replaced}
        return [path for path in setup_py().c_sources() if path.as_posix() not in left_out]

    def build(self, c_program: Program) -> Callable[..., str]:
        """The code as it is."""
        return c_program(self.program, sources=self.sources(), cflags=self.flags)

    def build_mutants(self, c_program: Program) -> Callable[..., str]:
        """The same with all faults in."""
        folder = ROOT / "build" / "ctest" / f"{Path(self.program).stem}_mutants"
        folder.mkdir(parents=True, exist_ok=True)
        beside = sorted({os.path.dirname(name) for name in self.own.values()})
        flags = [*self.flags, *(f"-iquote{ROOT / room}" for room in beside)]
        for macro, name in self.own.items():
            flags.append(f'-D{macro}="{self._write(folder / (macro + Path(name).suffix), macro, ROOT / name)}"')
        return c_program(self.program, sources=self.sources(), cflags=flags)

    def _write(self, copy: Path, macro: str, source: Path) -> Path:
        text = source.read_text()
        for number, mutant in enumerate(self.mutants.values(), 1):
            if mutant.macro == macro:
                text = mutant.put_into(text, self.variable, number)
        if not copy.exists() or copy.read_text() != text:
            new = copy.with_suffix(f".{os.getpid()}")
            new.write_text(text)
            new.replace(copy)
        return copy

    def names(self, takes_s: float = 100) -> list[object]:
        """Of the mutants, for parametrize; those that take long are for `make soak`."""
        mark = [pytest.mark.soak(takes_s=takes_s)]
        return [pytest.param(name, marks=mark if m.soak else ()) for name, m in self.mutants.items()]

    def finds(self, program: Callable[..., str], name: str, **how: object) -> None:
        """Fail unless the program with all faults finds this one."""
        mutant = self.mutants[name]
        options = (mutant.options or self.options).split()
        number = list(self.mutants).index(name) + 1
        assert "found: " in finding(program, mutant.scenario, *options, f"mutant={number}", **how)


def finding(program: Callable[..., str], *args: str, **how: object) -> str:
    """What a model says that it has found, which it must."""
    with pytest.raises(ProgramFailed) as failure:
        program(*args, **how)
    assert "exit status 2" in str(failure.value), "it was not looked through"
    return str(failure.value)
