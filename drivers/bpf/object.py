"""Reads a relocatable eBPF object, ours or clang's, and says what is wrong with one that cannot be loaded.

What is understood: XDP programs in sections "xdp" or "xdp/...", static functions in ".text", maps described by BTF in
".maps", global variables in .data/.rodata/.bss (each section becomes a one-element array map), the licence; relocations
R_BPF_64_64 (map or variable) and R_BPF_64_32 (call). What is refused, with the reason: another machine or byte order,
fragment-aware programs ("xdp.frags"), map-in-map and pinned maps, CO-RE relocations, any other relocation.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .btf import DATASEC, PTR, STRUCT, VAR, Btf
from .elf import EM_BPF, MapDef

R_BPF_NONE, R_BPF_64_64, R_BPF_64_ABS64, R_BPF_64_ABS32, R_BPF_64_NODYLD32, R_BPF_64_32 = 0, 1, 2, 3, 4, 10
_DATA_SECTIONS = (".data", ".rodata", ".bss")
_NUMBERS = {"type": "type", "max_entries": "max_entries", "map_flags": "flags"}


@dataclass(frozen=True)
class Relocation:
    """The instruction at byte `offset` refers to a map, a variable of a section, or a function."""

    offset: int
    kind: str  # "map", "value" or "call"
    target: str  # map name; for a call the section's name
    value: int  # byte offset within the section


@dataclass(frozen=True)
class Program:
    """One function of the object: its symbol, section, code, and relocations relative to the code."""

    name: str
    section: str
    text: bytes
    relocations: tuple[Relocation, ...]


@dataclass
class BpfObject:
    """A parsed object: what to create and what to load."""

    source: str
    license: str
    maps: dict[str, MapDef]
    data: dict[str, bytes]
    programs: dict[str, Program]
    text: Program | None = None
    defined: dict[str, int] = field(default_factory=dict)

    def program(self, name: str | None = None) -> Program:
        """The program called `name`, or the only one. Raises CorelaneError if that does not say which."""
        if name is None and len(self.programs) == 1:
            return next(iter(self.programs.values()))
        if name is None or name not in self.programs:
            listed = ", ".join(self.programs)
            asked = "it has several programs: name one" if name is None else f"it has no program {name!r}"
            raise CorelaneError(f"{self.source}: {asked} of: {listed}")
        return self.programs[name]


def read_object(source: str | Path | bytes) -> BpfObject:
    """Parse an object file, or the bytes of one. Raises CorelaneError with the reason when it cannot be loaded."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    label = "<bytes>" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise CorelaneError(f"cannot read eBPF object {label}: {error.strerror}") from error
    try:
        return _Reader(label, ELFFile(io.BytesIO(data))).read()
    except CorelaneError as error:
        raise CorelaneError(f"{label}: {error}") from error
    # pyelftools meets malformed files with whatever its parsers raise.
    except (ELFError, struct.error, ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise CorelaneError(f"{label}: not a usable ELF object ({error or type(error).__name__})") from error


class _Reader:
    def __init__(self, label: str, elf: Any) -> None:
        self.label = label
        self.elf = elf
        self.sections = list(elf.iter_sections())
        self.symbols: list[Any] = []
        self.btf: Btf | None = None

    def read(self) -> BpfObject:
        self._check_header()
        names = {s.name: s for s in self.sections}
        table = names.get(".symtab")
        if table is None:
            raise CorelaneError("it has no symbol table: it was stripped")
        self.symbols = list(table.iter_symbols())
        self.btf = Btf(names[".BTF"].data()) if ".BTF" in names else None
        self._refuse_core(names)
        license = names["license"].data().rstrip(b"\0").decode(errors="replace") if "license" in names else None
        if license is None:
            raise CorelaneError('section "license" is missing: add `char _license[] SEC("license") = "GPL";`')
        out = BpfObject(self.label, license, self._maps(names), self._data(), {})
        out.text = self._text(out)
        for index, section in enumerate(self.sections):
            if section.name.startswith("xdp."):
                raise CorelaneError(f'section "{section.name}": only single-buffer frames are taken; use "xdp"')
            if section.name == "xdp" or section.name.startswith("xdp/"):
                self._programs(out, index, section)
        if not out.programs:
            raise CorelaneError('section "xdp" is missing: no XDP program to load')
        return out

    def _check_header(self) -> None:
        header = self.elf.header
        machine = header["e_machine"]
        if machine not in ("EM_BPF", EM_BPF):
            raise CorelaneError(f"machine is {machine}, not EM_BPF: compile with `clang -target bpf`")
        if self.elf.elfclass != 64 or not self.elf.little_endian:
            raise CorelaneError("not a 64-bit little-endian object: compile with `-target bpfel`")
        if header["e_type"] != "ET_REL":
            raise CorelaneError(f"file type is {header['e_type']}, not a relocatable object")

    def _refuse_core(self, names: dict[str, Any]) -> None:
        if ".BTF.ext" not in names:
            return
        data = names[".BTF.ext"].data()
        # Header: magic, version, flags, hdr_len, then {func,line,core}_{off,len}; core only if hdr_len reaches there.
        if len(data) >= 32 and struct.unpack_from("<I", data, 4)[0] >= 32 and struct.unpack_from("<I", data, 28)[0]:
            raise CorelaneError("it has CO-RE relocations, which this loader does not apply: XDP programs need none")

    def _maps(self, names: dict[str, Any]) -> dict[str, MapDef]:
        if "maps" in names:
            raise CorelaneError('section "maps" holds legacy map definitions: define maps in SEC(".maps") with BTF')
        if ".maps" not in names:
            return {}
        if self.btf is None:
            raise CorelaneError("section .maps without .BTF: compile with -g")
        section = next((t for t in self.btf.types if t.kind == DATASEC and t.name == ".maps"), None)
        if section is None:
            raise CorelaneError(".BTF does not describe section .maps: compile with -g")
        out = {}
        for type_id, _, _ in section.members():
            variable = self.btf.get(type_id)
            if variable.kind == VAR:
                out[variable.name] = self._map(variable.name, variable.word)
        return out

    def _map(self, name: str, type_id: int) -> MapDef:
        btf = self.btf
        assert btf is not None  # established by _maps
        definition = btf.strip(type_id)
        if definition.kind != STRUCT:
            raise CorelaneError(f"map {name!r} is not defined by a struct")
        fields = {"type": 0, "key_size": 0, "value_size": 0, "max_entries": 0, "flags": 0}
        for name_off, member, _ in definition.members():
            label = btf.string(name_off)
            if label in _NUMBERS:
                fields[_NUMBERS[label]] = btf.number(member)
            elif label in ("key_size", "value_size"):
                fields[label] = btf.number(member)
            elif label in ("key", "value"):
                pointer = btf.strip(member)
                if pointer.kind != PTR:
                    raise CorelaneError(f"map {name!r}: member {label!r} is not a pointer (the __type macro)")
                fields[f"{label}_size"] = btf.size(pointer.word)
            elif label == "pinning" and btf.number(member) == 0:
                continue
            else:
                raise CorelaneError(f"map {name!r}: attribute {label!r} is not supported (no pinning, no map-in-map)")
        if not fields["type"]:
            raise CorelaneError(f"map {name!r} has no type")
        return MapDef(**fields)

    def _data(self) -> dict[str, bytes]:
        out = {}
        for section in self.sections:
            if section.name.startswith(_DATA_SECTIONS) and section["sh_size"]:
                empty = section["sh_type"] == "SHT_NOBITS"
                out[section.name] = bytes(section["sh_size"]) if empty else section.data()
        return out

    def _text(self, out: BpfObject) -> Program | None:
        for index, section in enumerate(self.sections):
            if section.name == ".text" and section["sh_size"]:
                return Program(".text", ".text", section.data(), self._relocations(out, index, 0, section["sh_size"]))
        return None

    def _programs(self, out: BpfObject, index: int, section: Any) -> None:
        code = section.data()
        if not code or len(code) % 8:
            raise CorelaneError(f'section "{section.name}" is {len(code)} bytes: not a whole number of instructions')
        for symbol in self.symbols:
            if symbol["st_shndx"] != index or symbol["st_info"]["type"] != "STT_FUNC":
                continue
            start, size = symbol["st_value"], symbol["st_size"]
            if start % 8 or size % 8 or not size or start + size > len(code):
                raise CorelaneError(f'function {symbol.name!r} does not lie within section "{section.name}"')
            relocations = self._relocations(out, index, start, start + size)
            out.programs[symbol.name] = Program(symbol.name, section.name, code[start : start + size], relocations)

    def _relocations(self, out: BpfObject, index: int, start: int, stop: int) -> tuple[Relocation, ...]:
        found = []
        for section in self.sections:
            if section["sh_type"] == "SHT_RELA" and section["sh_info"] == index:
                raise CorelaneError(f"{section.name} has addends: eBPF objects use SHT_REL")
            if section["sh_type"] != "SHT_REL" or section["sh_info"] != index:
                continue
            for entry in section.iter_relocations():
                at = entry["r_offset"]
                if start <= at < stop:
                    if at % 8 or at + 8 > stop:
                        raise CorelaneError(f"{section.name} relocates byte {at}, which is no instruction")
                    found.append(self._relocation(out, entry, at - start, index, at))
        return tuple(found)

    def _relocation(self, out: BpfObject, entry: Any, offset: int, index: int, at: int) -> Relocation:
        kind, number = entry["r_info_type"], entry["r_info_sym"]
        if not 0 <= number < len(self.symbols):
            raise CorelaneError(f"a relocation names symbol {number} of {len(self.symbols)}")
        symbol = self.symbols[number]
        where = symbol["st_shndx"]
        if not isinstance(where, int) or where >= len(self.sections):
            raise CorelaneError(f"symbol {symbol.name!r} is not defined in the object")
        home = self.sections[where]
        code = self.sections[index].data()
        imm = struct.unpack_from("<i", code, at + 4)[0]
        if kind == R_BPF_64_64 and home.name == ".maps":
            if symbol.name not in out.maps:
                raise CorelaneError(f"a relocation names {symbol.name!r}, which is no map of the object")
            return Relocation(offset, "map", symbol.name, 0)
        if kind == R_BPF_64_64 and home.name in out.data:
            return Relocation(offset, "value", home.name, symbol["st_value"] + imm)
        if kind == R_BPF_64_32 and home.name == ".text":
            # The immediate counts instructions from the symbol, less one (clang's addend for calls).
            return Relocation(offset, "call", ".text", symbol["st_value"] + 8 * (imm + 1))
        raise CorelaneError(
            f"relocation type {kind} at byte {at} against {symbol.name or home.name!r} ({home.name}) is not supported"
        )
