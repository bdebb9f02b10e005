"""Writes a relocatable EM_BPF object: code in section "xdp", BTF-described maps in ".maps", relocations, licence.

The object is what clang would make of the same program, so that any loader takes it (ours, libbpf's, bpftool) and any
tool shows it (`llvm-objdump -dr`, `readelf`). Layout: ELF64 header, section contents, section headers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...runtime.errors import CorelaneError
from .asm import Code
from .btf import BtfBuilder

EM_BPF = 247
R_BPF_64_64 = 1
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_REL = 1, 2, 3, 9
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_MAP_FIELDS = ("type", "key_size", "value_size", "max_entries", "map_flags")


@dataclass(frozen=True)
class MapDef:
    """A map to create: type (enum bpf_map_type), sizes in bytes, entries, BPF_F_* flags."""

    type: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int = 0


@dataclass
class _Section:
    name: str
    kind: int
    data: bytes
    flags: int = 0
    link: int = 0
    info: int = 0
    align: int = 8
    entry: int = 0
    offset: int = field(default=0, init=False)


class _Strings:
    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def _maps_btf(maps: Mapping[str, MapDef]) -> tuple[bytes, int]:
    """(content of .BTF, bytes that one map variable takes in .maps)."""
    b = BtfBuilder()
    integer = b.integer("int", 4)
    size = 8 * len(_MAP_FIELDS)
    variables = []
    for position, (name, m) in enumerate(maps.items()):
        values = (m.type, m.key_size, m.value_size, m.max_entries, m.flags)
        pointers = [b.pointer(b.array(integer, integer, v)) for v in values]
        members = [(f, p, 64 * i) for i, (f, p) in enumerate(zip(_MAP_FIELDS, pointers, strict=True))]
        variable = b.variable(name, b.struct("", size, members))
        variables.append((variable, position * size, size))
    b.section(".maps", size * len(maps), variables)
    return b.data(), size


def write_object(code: Code, maps: Mapping[str, MapDef], *, function: str, license: str = "Dual MIT/GPL") -> bytes:
    """The bytes of an ELF object with one XDP program. Raises CorelaneError if the code names a map that is not given.

    function: the program's symbol. license: decides which helpers the kernel lets the program call.
    """
    for _, name in code.map_refs:
        if name not in maps:
            raise CorelaneError(f"the code refers to map {name!r}; defined are {', '.join(maps) or 'none'}")
    btf, map_bytes = _maps_btf(maps)
    strings = _Strings()
    # Section indices: 1 xdp, 2 .maps, 3 license, 4 .BTF, 5 .relxdp, 6 .symtab, 7 .strtab.
    symbols = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)]
    symbols.append(struct.pack("<IBBHQQ", strings.add(function), 0x12, 0, 1, 0, len(code.text)))  # GLOBAL FUNC
    index = {}
    for position, name in enumerate(maps):
        index[name] = len(symbols)
        symbols.append(struct.pack("<IBBHQQ", strings.add(name), 0x11, 0, 2, position * map_bytes, map_bytes))
    symbols.append(struct.pack("<IBBHQQ", strings.add("_license"), 0x11, 0, 3, 0, len(license) + 1))
    relocations = b"".join(struct.pack("<QQ", at, index[n] << 32 | R_BPF_64_64) for at, n in code.map_refs)
    sections = [
        _Section("xdp", _SHT_PROGBITS, code.text, _SHF_ALLOC | _SHF_EXECINSTR),
        _Section(".maps", _SHT_PROGBITS, bytes(map_bytes * len(maps)), _SHF_ALLOC | _SHF_WRITE),
        _Section("license", _SHT_PROGBITS, license.encode() + b"\0", _SHF_ALLOC | _SHF_WRITE, align=1),
        _Section(".BTF", _SHT_PROGBITS, btf, align=4),
        _Section(".relxdp", _SHT_REL, relocations, link=6, info=1, entry=16),
        _Section(".symtab", _SHT_SYMTAB, b"".join(symbols), link=7, info=1, entry=24),
        _Section(".strtab", _SHT_STRTAB, b"", align=1),
    ]
    return _layout(sections, strings)


def _layout(sections: list[_Section], strings: _Strings) -> bytes:
    names = [strings.add(s.name) for s in sections]
    sections[-1].data = bytes(strings.data)
    out = bytearray(64)
    for s in sections:
        out += bytes(-len(out) % s.align)
        s.offset = len(out)
        out += s.data
    out += bytes(-len(out) % 8)
    table = len(out)
    out += bytes(64)
    for name, s in zip(names, sections, strict=True):
        fields = (name, s.kind, s.flags, 0, s.offset, len(s.data), s.link, s.info, s.align, s.entry)
        out += struct.pack("<IIQQQQIIQQ", *fields)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = (1, EM_BPF, 1, 0, 0, table, 0, 64, 0, 0, 64, len(sections) + 1, len(sections))
    out[:64] = ident + struct.pack("<HHIQQQIHHHHHH", *header)
    return bytes(out)
