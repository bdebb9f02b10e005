"""Lines of Python in compiled handlers (lines.py), as whoever samples them sees them (libos/trace/symbols.py)."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from corelane.libos.handlers import compile as compiling
from corelane.libos.handlers import kept
from corelane.libos.numba.lines import Lines, attached, read, stripped, wants
from corelane.libos.trace.symbols import NO_FILE, Symbols
from corelane.runtime import codes
from corelane.runtime.perf import mapped_code


def sums(request, reply):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(len(request)):
        total = total * 31 + request[i] % 7
    if total == 5:
        raise ValueError("five")
    reply[0] = total & 255
    return 1


def library_of(made: Any) -> Path:
    return Path(made.keep[0]._name)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """`sums`, as it is kept in a folder of that name."""

    def compile_it(name: str) -> Any:
        monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path / name))
        made = kept.compiled("handler", sums)
        assert str(tmp_path / name) in str(library_of(made))
        return made

    return compile_it


def test_a_compiled_handler_says_its_lines(compiled: Callable[[str], Any]) -> None:
    made = compiled("one")
    symbols, (source, first) = Symbols(mapped_code(os.getpid())), inspect.getsourcelines(sums)
    with library_of(made).open("rb") as file:
        (entry,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name(kept.ENTRY)
    told = [symbols.name_of(made.address + i) for i in range(entry["st_size"])]
    assert {re.sub(r":\d+", "", name) for name in told} <= {"sums (test_lines.py)", "sums"}
    lines = {int(found[1]) for name in told if (found := re.search(r":(\d+)\)$", name))}
    assert lines <= set(range(first, first + len(source)))
    loop = first + next(i for i, line in enumerate(source) if "* 31" in line)
    whole = {re.search(r":(\d+)\)", name)[1] for name in _all_names(made)}  # type: ignore[index]
    assert str(loop) in whole
    reply = (ctypes.c_uint8 * 16)()
    words = [ctypes.c_void_p, ctypes.c_int64] * 2
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *words, ctypes.c_void_p)(made.address)
    assert (call((ctypes.c_uint8 * 2)(8, 9), 2, reply, 16, None), reply[0]) == (1, 33)


def test_a_handler_that_is_compiled_into_memory_says_them_too() -> None:
    made = compiling.compile_handler(sums, cache=False)
    told = codes.of_process(os.getpid())
    (mine,) = [code for code in told if code.begin <= made.address < code.end]
    symbols, (source, first) = Symbols(mapped_code(os.getpid()), told), inspect.getsourcelines(sums)
    names = {symbols.name_of(pc) for pc in range(mine.begin, mine.end)}
    lines = {int(found[1]) for name in names if (found := re.fullmatch(r"sums \(test_lines.py:(\d+)\)", name))}
    assert lines
    assert lines <= set(range(first, first + len(source)))
    assert first + next(i for i, line in enumerate(source) if "* 31" in line) in lines
    assert Symbols(mapped_code(os.getpid())).name_of(made.address) == NO_FILE, "unless it is told"
    reply = (ctypes.c_uint8 * 16)()
    words = [ctypes.c_void_p, ctypes.c_int64] * 2
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *words, ctypes.c_void_p)(made.address)
    assert (call((ctypes.c_uint8 * 2)(8, 9), 2, reply, 16, None), reply[0]) == (1, 33)


def _all_names(made: Any) -> set[str]:
    """Of all code of its file that has lines."""
    path = str(library_of(made))
    symbols = Symbols(mapped_code(os.getpid()))
    mine = [m for m in mapped_code(os.getpid()) if m.path == path]
    names = {symbols.name_of(pc) for m in mine for pc in range(m.begin, m.end)}
    return {name for name in names if "test_lines.py:" in name}


def test_the_code_is_the_same_as_without(compiled: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def code(made: Any) -> bytes:
        with library_of(made).open("rb") as file:
            return bytes(ELFFile(file).get_section_by_name(".text").data())

    with_lines = compiled("with")
    monkeypatch.setattr(compiling, "has_lines", lambda function: False)
    without = compiled("without")
    assert not _all_names(without)
    assert len(code(without)) == len(code(with_lines))


def test_what_has_no_source_has_no_lines() -> None:
    made: dict[str, Any] = {}
    exec("def nothing(request, reply): return 0", made)
    assert not wants(made["nothing"])
    assert not wants(len)
    assert wants(sums)


TEXT = """\
define i64 @"f$1"(i64 %x) #0 !dbg !5 {
entry:
    #dbg_value(i64 %x, !6, !DIExpression(), !9)
  %a = add i64 %x, 1, !dbg !7
  %0 = mul i64 %a, 3, !dbg !8
  store i64 %0, ptr null, align 8, !dbg !8
  ret i64 %0, !dbg !8
}

define void @NRT_other() {
  ret void
}

!llvm.dbg.cu = !{!1}
!llvm.module.flags = !{!0}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_Python, file: !2)
!2 = !DIFile(filename: "a.py", directory: "/b")
!5 = distinct !DISubprogram(name: "f", scope: !2, file: !2, line: 10, unit: !1)
!7 = !DILocation(line: 11, column: 1, scope: !5)
!8 = !DILocation(line: 12, column: 1, scope: !5)
"""


def test_lines_go_and_come_back() -> None:
    lines = read(TEXT)
    assert (lines.file, lines.first) == ("/b/a.py", 10)
    assert dict(lines.of) == {"f$1": {"%a": 11, "%u0": 12, "store i64 %u0, ptr null, align 8": 12, "ret i64 %u0": 12}}
    plain = stripped(TEXT)
    assert "dbg" not in plain
    assert read(plain) == Lines()
    again = attached(plain.replace("%0", "%u0").replace('@"f$1"', '@"f$1.clp.4"'), lines)
    back = read(again)
    assert (back.file, back.first) == ("/b/a.py", 10)
    assert dict(back.of) == {"f$1": dict(lines.of["f$1"])}
    assert attached(plain, Lines()) == plain
