"""Mistakes made on purpose in copies of source files, for tests that show that they are found.

One by one (`build_with`), or all of them in one program, of which a run chooses one (`Planted`): a function in which
there are mistakes is there once as it is and once for each mistake, and calls of it choose among these. So a test of
one mistake costs a run, and no compilation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path

from .cbuild import ROOT, CBuild

Changes = Iterable[tuple[str, str, str]]  # file, old and new text of it
# As clang-format leaves it: from the beginning of a line, and its body ends where a line begins with a brace.
FUNCTION = re.compile(r"^(?P<head>[A-Za-z_][^;{}=#/]*\))\n(?P<body>\{\n.*?^\}\n)", re.M | re.S)
ARGUMENT = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[[^]]*\])*$")  # the name in a parameter: of a function, or of a value
CHOICE = "planted_mistake"  # tests/support/c/planted.c, which reads CORELANE_PLANTED


def from_the_root(text: str, folder: Path) -> str:
    """A source of `folder` whose includes are found wherever it lies: their paths become those from the root."""

    def whole(include: re.Match[str]) -> str:
        beside = os.path.normpath(folder / include[1])
        return f'#include "{beside}"' if (ROOT / beside).exists() else include[0]

    return re.sub(r'#include "([^"]+)"', whole, text)


def planted(tmp: Path, file: str, changes: Iterable[tuple[str, str]]) -> Path:
    """A copy of `file` in which each (old, new) of `changes` is made, and which compiles anywhere.

    An old text that is not there exactly once fails the test: change the mistake then.
    """
    out = tmp / Path(file).name
    out.write_text(from_the_root(changed(file, changes), Path(file).parent))
    return out


def changed(file: str, changes: Iterable[tuple[str, str]]) -> str:
    """The text of `file` in which each (old, new) is made, and old is there exactly once."""
    text = (ROOT / file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    return text


def build_with(builder: CBuild, tmp: Path, source: str, *mistakes: Path) -> Callable[..., str]:
    """The test program `source`, linked with the planted files and not the library's: call it with its arguments."""
    return builder.runner(builder.build_instead(source, mistakes, tmp))


class Planted:
    """Mistakes by their names, all of which are in each program that is made with them."""

    def __init__(self, builder: CBuild, name: str, mistakes: Mapping[str, Changes]) -> None:
        """name: of the folder of build/ that keeps what is compiled, so another one for each set of mistakes."""
        self.builder, self.name = builder, name
        self.numbers = {mistake: number for number, mistake in enumerate(mistakes, 1)}
        by_file: dict[str, dict[int, list[tuple[str, str]]]] = {}
        for mistake, changes in mistakes.items():
            for file, old, new in changes:
                by_file.setdefault(file, {}).setdefault(self.numbers[mistake], []).append((old, new))
        self.texts = {file: all_in_one(file, numbered) for file, numbered in by_file.items()}
        self.programs: dict[str, Path] = {}

    def program(self, source: str, mistake: str) -> Callable[..., str]:
        """The test program `source` with this mistake in the library: call it with its arguments."""
        if source not in self.programs:
            self.programs[source] = self.builder.build_planted(source, self.name, self.texts)
        run = self.builder.runner(self.programs[source])
        return partial(run, env={"CORELANE_PLANTED": str(self.numbers[mistake])})


def all_in_one(file: str, mistakes: Mapping[int, Iterable[tuple[str, str]]]) -> str:
    """The text of `file` with all mistakes, each of which is the (old, new) that it changes in bodies of functions."""
    before = (ROOT / file).read_text()
    after = {number: changed(file, changes) for number, changes in mistakes.items()}
    for number, text in after.items():
        why = f"mistake {number} of {file} changes more than bodies of functions"
        pairs = zip_longest(FUNCTION.finditer(before), FUNCTION.finditer(text))
        assert all(a and b and a["head"] == b["head"] for a, b in pairs), why
        assert FUNCTION.sub("", text) == FUNCTION.sub("", before), why
    bodies = {number: [m["body"] for m in FUNCTION.finditer(text)] for number, text in after.items()}
    place = iter(range(len(FUNCTION.findall(before))))

    def chosen(function: re.Match[str]) -> str:
        at = next(place)
        others = {number: all_of[at] for number, all_of in bodies.items() if all_of[at] != function["body"]}
        return _choosing(function["head"], {0: function["body"]} | others) if others else function[0]

    return f"extern int {CHOICE};\n" + from_the_root(FUNCTION.sub(chosen, before), Path(file).parent)


def _choosing(head: str, bodies: Mapping[int, str]) -> str:
    """A function that is one of several of the same head, by their numbers."""
    start = _last_parenthesis(head)
    name = re.search(r"\w+$", head[:start])
    assert name, head
    arguments = ", ".join(_arguments(head[start + 1 : -1]))
    static = "" if head.startswith("static") else "static "
    versions = [f"{static}{head[: name.start()]}{name[0]}__{n}{head[start:]}\n{body}\n" for n, body in bodies.items()]
    choice = f"{name[0]}__0({arguments})"
    for number in bodies:
        if number:
            choice = f"{CHOICE} == {number} ? {name[0]}__{number}({arguments}) : {choice}"
    return f"{head};\n{''.join(versions)}{head}\n{{\n    return {choice};\n}}\n"


def _last_parenthesis(head: str) -> int:
    """Where the list of parameters opens, with which the head of a function ends."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if not depth:
            return at
    raise AssertionError(head)


def _arguments(parameters: str) -> list[str]:
    """The names of parameters."""
    while (inner := re.sub(r"(?<=\))\([^()]*\)", "", parameters)) != parameters:
        parameters = inner  # those of a function that is one
    assert "..." not in parameters, f"a function of any number of arguments cannot be one of several: ({parameters})"
    if parameters == "void":
        return []
    names = [ARGUMENT.search(parameter.strip()) for parameter in parameters.split(",")]
    return [found[1] or found[2] for found in names if found]
