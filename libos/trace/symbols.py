"""Names of program counters of a process, by the symbols of the ELF files that it has mapped (pyelftools).

A compiled handler is a shared object of the cache (libos/handlers/kept.py), whose name begins with that of the
function, and which has its lines of Python as DWARF (libos/numba/lines.py). Numba's own names are told as
module.function. What numba compiles into memory has no file: the process tells of handlers among it (runtime/codes.py);
the rest is told as such.

Files and names are another program's: what pyelftools stumbles over has no names, and names are one line of text.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import io
import itertools
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.codes import Code
from ...runtime.files import open_regular
from ...runtime.perf import Mapped
from ...runtime.printable import printable

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

NO_FILE = "compiled in memory"
_FUNCTION = 2  # STT_FUNC
# Elf64_Sym (elf(5))
_SYMBOL = [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("at", "<u8"), ("n", "<u8")]
_KEPT = re.compile(r"(\w+)-[0-9a-f]{12}\b.*")
_ENTRY = "cl_kept_entry"
_AROUND = "corelane.libos.handlers.compile."  # what is around a handler, whose code is in it
_FAR = 1 << 40  # of sections that are not looked at


class Symbols:
    """Of a process, by what it had mapped, and what code it tells of that is in no file. Files are read when something
    of them is asked for."""

    def __init__(self, mapped: Sequence[Mapped], told: Sequence[Code] = ()) -> None:
        self._told = sorted(told, key=lambda code: code.begin)
        self._mapped = sorted(mapped, key=lambda m: m.begin)
        self._begins = [m.begin for m in self._mapped]
        self.name_of = functools.cache(lambda pc: printable(self._name_of(pc)))

    def _name_of(self, pc: int) -> str:
        """The function that a program counter is in; else the file, or what is known."""
        row = bisect.bisect_right(self._begins, pc) - 1
        if row < 0 or pc >= self._mapped[row].end:
            return "unknown"
        mapped = self._mapped[row]
        if not mapped.path.startswith("/"):
            if (code := self._code_at(pc)) is not None:
                return _name_in(code, pc - code.begin)
            return mapped.path.strip("[]") or NO_FILE
        offset = pc - mapped.begin + mapped.offset
        name = _functions(mapped.path).at(offset)
        short = Path(mapped.path.removesuffix(" (deleted)")).name
        kept = _KEPT.fullmatch(short)
        name = (kept[1] if kept else name or short) if name in ("", _ENTRY) else readable(name)
        line = _lines(mapped.path).at(offset) if kept else ""
        return f"{name} ({line})" if line else name

    def _code_at(self, pc: int) -> Code | None:
        row = bisect.bisect_right(self._told, pc, key=lambda code: code.begin) - 1
        return self._told[row] if row >= 0 and pc < self._told[row].end else None


def _name_in(code: Code, offset: int) -> str:
    functions, lines = _of_object(code.elf, code.symbol)
    name = readable(functions.at(offset))
    name = code.name if name in ("", readable(code.symbol)) or name.startswith(_AROUND) else name
    line = lines.at(offset)
    return f"{name} ({line})" if line else name


class _Functions:
    """Functions of an ELF file, or lines, by where they are in it."""

    def __init__(self, begins: Array, ends: Array, names: Sequence[str]) -> None:
        self._begins, self._ends, self._names = begins, ends, names

    def at(self, offset: int) -> str:
        import numpy

        row = int(numpy.searchsorted(self._begins, offset, side="right")) - 1
        return self._names[row] if row >= 0 and offset < self._ends[row] else ""


@functools.lru_cache(maxsize=256)
def _functions(path: str) -> _Functions:
    """None of a file that cannot be read, or is none."""
    from elftools.elf.elffile import ELFFile

    with contextlib.suppress(Exception), open_regular(path) as file:
        return _read(ELFFile(file))
    return _none()


@functools.lru_cache(maxsize=256)
def _lines(path: str) -> _Functions:
    """Lines of a file, as "slow.py:77"; none of one that does not say, or cannot be read."""
    from elftools.elf.elffile import ELFFile

    with contextlib.suppress(Exception), open_regular(path) as file:
        return _read_lines(ELFFile(file))
    return _none()


@functools.lru_cache(maxsize=256)
def _of_object(data: bytes, symbol: str) -> tuple[_Functions, _Functions]:
    """Functions and lines of an object file, by where they are in the section of one of its symbols."""
    from elftools.elf.elffile import ELFFile

    functions, lines = _none(), _none()
    with contextlib.suppress(Exception):
        elf = ELFFile(io.BytesIO(_apart(data, symbol)))
        functions = _read(elf)
        lines = _read_lines(elf)
    return functions, lines


def _apart(data: bytes, symbol: str) -> bytes:
    """An object file whose other sections are far from that of the symbol, for each begins at 0: what refers to them is
    not taken for it. And without the relocations of its unwind tables, of which there are some that pyelftools does not
    know, and which nobody needs."""
    import numpy
    from elftools.elf.elffile import ELFFile

    elf, out = ELFFile(io.BytesIO(data)), bytearray(data)
    table: Any = elf.get_section_by_name(".symtab")
    section = table.get_symbol_by_name(symbol)[0]["st_shndx"]
    begin, size = table["sh_offset"], table["sh_size"]
    symbols = numpy.frombuffer(data[begin : begin + size], numpy.dtype(_SYMBOL)).copy()
    symbols["at"][symbols["section"] != section] += _FAR
    out[begin : begin + size] = symbols.tobytes()
    for i, one in enumerate(elf.iter_sections()):
        if one.name == ".rela.eh_frame":
            struct.pack_into("=I", out, elf["e_shoff"] + i * elf["e_shentsize"] + 4, 0)  # SHT_NULL
    return bytes(out)


def _read_lines(elf: Any) -> _Functions:
    import numpy

    if not elf.has_dwarf_info():
        return _none()
    dwarf, rows = elf.get_dwarf_info(), []
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        states = [entry.state for entry in program.get_entries() if entry.state is not None] if program else []
        for state, after in itertools.pairwise(states):
            if not state.end_sequence and after.address > state.address:
                rows.append((state.address, after.address, _place(program, state)))
    rows.sort()
    begins = numpy.array([begin for begin, _, _ in rows], numpy.int64)
    far = _offset_of(elf, begins)
    lengths = numpy.array([end - begin for begin, end, _ in rows], numpy.int64)
    return _Functions(far, far + lengths, [place for _, _, place in rows])


def _place(program: Any, state: Any) -> str:
    if not state.line:
        return ""
    files = program.header["file_entry"]
    number = state.file - (0 if program.header["version"] >= 5 else 1)
    return f"{files[number]['name'].decode(errors='replace')}:{state.line}"


def _offset_of(elf: Any, addresses: Array) -> Array:
    """Where in the file is what is loaded at some addresses."""
    offsets = addresses.copy()
    for segment in elf.iter_segments("PT_LOAD"):
        inside = (addresses >= segment["p_vaddr"]) & (addresses < segment["p_vaddr"] + segment["p_memsz"])
        offsets[inside] += segment["p_offset"] - segment["p_vaddr"]
    return offsets


def _none() -> _Functions:
    import numpy

    return _Functions(numpy.zeros(0, int), numpy.zeros(0, int), ())


def _read(elf: Any) -> _Functions:
    """All symbols at once: one by one they take a second of a large library."""
    import numpy

    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    if table is None or elf.elfclass != 64:
        return _none()
    symbols = numpy.frombuffer(table.data(), numpy.dtype(_SYMBOL))
    symbols = symbols[(symbols["info"] & 15 == _FUNCTION) & (symbols["section"] != 0)]
    symbols = symbols[numpy.argsort(symbols["at"], kind="stable")]
    offsets = _offset_of(elf, symbols["at"].astype(numpy.int64))
    texts = elf.get_section(table["sh_link"]).data()
    names = [texts[at : texts.index(b"\0", at)].decode(errors="replace") for at in symbols["name"].tolist()]
    return _Functions(offsets, offsets + numpy.maximum(symbols["n"].astype(numpy.int64), 1), names)


def readable(name: str) -> str:
    """A name as people write it: of numba's and C++'s nested names (Itanium C++ ABI, section 5.1.5) their parts."""
    if not name.startswith("_ZN"):
        return name
    parts, rest = [], name[3:]
    while found := re.match(r"(\d+)", rest):
        length = int(found[1])
        parts.append(rest[found.end() : found.end() + length])
        rest = rest[found.end() + length :]
    return ".".join(parts) or name
