"""Lines of Python in compiled code, for whoever samples where it is (libos/trace/symbols.py).

numba writes down of each instruction which line it is of, if it is asked to (`with_lines`), and LLVM keeps that while
it optimises. What comes behind, probes that are put into LLVM's text above all, knows nothing of it: so the lines are
read out of the text (`read`), the text goes on without them (`stripped`), and those instructions that are still there
have theirs again in the end (`attached`), the others that of the one before. Of code of other functions that was put
into the handler's it is the line of the call.

That is all there is of debug information, a DWARF line table: no variables, no types.
Importing this module does not import numba.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_NAME = r'%(?:"[^"]*"|[-\w.$]+)'
_RESULT = re.compile(rf"^\s+({_NAME}) = ")
_DBG = re.compile(r", !dbg !(\d+)")
_RECORD = re.compile(r"^\s*(?:#dbg_|(?:tail )?call void @llvm\.dbg\.)")
_LOCATION = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)", re.M)
_NUMBERED = re.compile(r"%(\d+)\b")
_FUNCTION = re.compile(r'^define [^\n]*?@("[^"]*"|[-\w.$]+)\(')
_COPY = re.compile(r"\.clp\.\d+$")  # of batch_work/probes.py
_FIRST_NODE = 960_000  # of metadata: LLVM numbers its own from 0 on, others of ours begin at 970 000
_NO_LINE = ("phi ", "landingpad ", "]")
_FILE = re.compile(r'!DIFile\(filename: "([^"]*)", directory: "([^"]*)"')
_SUBPROGRAM = re.compile(r"^!\d+ = distinct !DISubprogram\([^\n]*\bline: (\d+)", re.M)
_NOT_OURS = ("_ZN7cpython", "NRT_", "numba_", "cl_", "clp")


@dataclass(frozen=True)
class Lines:
    """Of a module: by function, by result or text of an instruction, its line. file: of all; first: line of the
    function in it."""

    of: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    file: str = ""
    first: int = 1


def wants(function: Callable[..., Any]) -> bool:
    """Whether there is a file with its lines, in which numba finds the first one of its body: not of a lambda. Imports
    numba."""
    from numba.misc.firstlinefinder import get_func_body_first_lineno

    code = getattr(function, "__code__", None)
    if code is None or not os.path.isfile(code.co_filename):
        return False
    try:
        code.co_filename.encode()  # LLVM is given text
        return get_func_body_first_lineno(function) is not None
    except (OSError, ValueError, SyntaxError, IndexError):  # the file is another one by now, or no text
        return False


@functools.lru_cache(maxsize=1)
def with_lines() -> type[Any]:
    """A numba pipeline class (`njit(pipeline_class=...)`) whose code says its lines. Imports numba."""
    from numba.core.compiler import Compiler

    class CompilerOfLines(Compiler):  # type: ignore[misc]  # numba has no types
        def __init__(
            self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, flags: Any, locals: Any
        ) -> None:
            flags = flags.copy()
            flags.debuginfo = flags.dbg_directives_only = True
            super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    return CompilerOfLines


def read(text: str) -> Lines:
    """What LLVM's text of a module says of lines."""
    line_of = {number: int(line) for number, line in _LOCATION.findall(text)}
    found: dict[str, dict[str, int]] = {}
    mine: dict[str, int] | None = None
    for line in text.splitlines():
        if begins := _FUNCTION.match(line):
            mine = found.setdefault(_plain(begins[1]), {})
        elif line == "}":
            mine = None
        elif mine is not None and (at := _DBG.search(line)) and line_of.get(at[1]):
            mine.setdefault(_key(line), line_of[at[1]])
    file, first = _FILE.search(text), _SUBPROGRAM.search(text)
    if file is None or first is None or not any(found.values()):
        return Lines()
    return Lines({name: of for name, of in found.items() if of}, os.path.join(file[2], file[1]), int(first[1]))


def stripped(text: str) -> str:
    """The text of a module without any debug information."""
    out = []
    for line in text.splitlines():
        if line.startswith("!llvm.dbg.cu = ") or _RECORD.match(line):
            continue
        if line.startswith("define "):
            line = re.sub(r" !dbg !\d+(?= )", "", line)
        out.append(_DBG.sub("", line))
    return "\n".join([*out, ""])


def attached(text: str, lines: Lines) -> str:
    """The text of a module, which has no debug information, with a line for each instruction of the functions that
    `lines` knows, and of what was made of these. The text as it is, if there are none."""
    made = _Made()
    parts = re.split(r"^(define [^\n]*\{\n.*?^\}$)", text, flags=re.M | re.S)
    whole = "".join(part if i % 2 == 0 else _with_lines(part, lines, made) for i, part in enumerate(parts))
    if not made.nodes:
        return text
    return "\n".join([*_flagged(whole.splitlines()), *_unit(lines), *made.nodes, ""])


@dataclass
class _Made:
    """Nodes of metadata, as text, that are new; number: of the next one."""

    nodes: list[str] = field(default_factory=list)
    number: int = _FIRST_NODE + 10

    def add(self, text: str) -> int:
        self.nodes.append(f"!{self.number} = {text}")
        self.number += 1
        return self.number - 1


def _with_lines(function: str, lines: Lines, made: _Made) -> str:
    head, *body = function.split("\n")
    begins = _FUNCTION.match(head)
    name = _plain(begins[1]) if begins else ""
    mine = lines.of.get(name)
    if mine is None and len(lines.of) == 1 and not name.startswith(_NOT_OURS):  # others were made of the one
        mine = next(iter(lines.of.values()))
        if not any(_key(line) in mine for line in body if _RESULT.match(line)):
            mine = None
    if mine is None:
        return function
    scope = made.add(_subprogram(lines.first))
    numbers: dict[int, int] = {}
    current, out = lines.first, [re.sub(r" \{$", f" !dbg !{scope} {{", head)]
    for line in body:
        if _takes_a_line(line):
            current = mine.get(_key(line), current)
            if current not in numbers:
                numbers[current] = made.add(f"!DILocation(line: {current}, column: 1, scope: !{scope})")
            line += f", !dbg !{numbers[current]}"
        out.append(line)
    return "\n".join(out)


def _plain(name: str) -> str:
    return _COPY.sub("", name.strip('"'))


def _key(line: str) -> str:
    """What an instruction is known by, as batch_work/ir.py writes it."""
    line = _NUMBERED.sub(r"%u\1", line)
    found = _RESULT.match(line)
    return found[1] if found else line.strip().partition(", !")[0]


def _takes_a_line(line: str) -> bool:
    """Whether it is one instruction, in one line."""
    if not line.startswith("  ") or line.startswith("    ") or line.rstrip().endswith("["):
        return False
    body = line.split(" = ", 1)[1] if _RESULT.match(line) else line.strip()
    return not body.startswith(_NO_LINE)


def _subprogram(first: int) -> str:
    n = _FIRST_NODE
    return (
        f'distinct !DISubprogram(name: "handler", scope: !{n + 1}, file: !{n + 1}, line: {first}, '
        f"type: !{n + 2}, scopeLine: {first}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{n})"
    )


def _unit(lines: Lines) -> list[str]:
    n, (folder, base) = _FIRST_NODE, os.path.split(lines.file)
    return [
        f"!llvm.dbg.cu = !{{!{n}}}",
        f'!{n} = distinct !DICompileUnit(language: DW_LANG_Python, file: !{n + 1}, producer: "corelane", '
        "isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)",
        f'!{n + 1} = !DIFile(filename: "{base}", directory: "{folder}")',
        f"!{n + 2} = !DISubroutineType(types: !{n + 3})",
        f"!{n + 3} = !{{null}}",
    ]


def _flagged(text: list[str]) -> list[str]:
    """With the flags that say which form debug information has, if there are none."""
    if any("Debug Info Version" in line for line in text):
        return text
    n = _FIRST_NODE
    flags = [f'!{n + 4} = !{{i32 2, !"Debug Info Version", i32 3}}', f'!{n + 5} = !{{i32 7, !"Dwarf Version", i32 4}}']
    mine = f"!{n + 4}, !{n + 5}"
    at = next((i for i, line in enumerate(text) if line.startswith("!llvm.module.flags = !{")), None)
    if at is None:
        return [*text, f"!llvm.module.flags = !{{{mine}}}", *flags]
    had = text[at].removesuffix("}")
    return [*text[:at], f"{had}{'' if had.endswith('{') else ', '}{mine}}}", *text[at + 1 :], *flags]
