"""BTF, the type format in which an object describes its maps: a builder for our objects and a parser for anybody's.

Layout (kernel, Documentation/bpf/btf.rst): header {magic u16, version u8, flags u8, hdr_len u32, type_off, type_len,
str_off, str_len}, then records {name_off u32, info u32 = vlen | kind << 24 | kflag << 31, size_or_type u32} with a tail
that depends on the kind. Type ids count from 1; 0 is void.

A map definition is a variable in the data section `.maps`, of a struct whose members are pointers: `int (*name)[N]`
says the number N, `T *key` and `T *value` say the size of T.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ...runtime.errors import CorelaneError

MAGIC = 0xEB9F
INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT = range(1, 12)
FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(12, 20)
_ALIASES = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG)
# Bytes of tail: fixed, and for each of vlen elements.
_TAIL = {
    INT: (4, 0),
    PTR: (0, 0),
    ARRAY: (12, 0),
    STRUCT: (0, 12),
    UNION: (0, 12),
    ENUM: (0, 8),
    FWD: (0, 0),
    TYPEDEF: (0, 0),
    VOLATILE: (0, 0),
    CONST: (0, 0),
    RESTRICT: (0, 0),
    FUNC: (0, 0),
    FUNC_PROTO: (0, 8),
    VAR: (4, 0),
    DATASEC: (0, 12),
    FLOAT: (0, 0),
    DECL_TAG: (4, 0),
    TYPE_TAG: (0, 0),
    ENUM64: (0, 12),
}


class BtfBuilder:
    """Collects types and strings; `data` is the section's content."""

    def __init__(self) -> None:
        self._types = bytearray()
        self._strings = bytearray(b"\0")
        self._offsets: dict[str, int] = {"": 0}
        self._next = 1

    def _string(self, text: str) -> int:
        if text not in self._offsets:
            self._offsets[text] = len(self._strings)
            self._strings += text.encode() + b"\0"
        return self._offsets[text]

    def _add(self, name: str, kind: int, size_or_type: int, tail: bytes = b"", vlen: int = 0) -> int:
        self._types += struct.pack("<III", self._string(name), vlen | kind << 24, size_or_type) + tail
        self._next += 1
        return self._next - 1

    def integer(self, name: str, size: int) -> int:
        """A signed integer type of `size` bytes."""
        return self._add(name, INT, size, struct.pack("<I", 1 << 24 | size * 8))

    def pointer(self, to: int) -> int:
        """A pointer to a type."""
        return self._add("", PTR, to)

    def array(self, element: int, index: int, count: int) -> int:
        """`element[count]`."""
        return self._add("", ARRAY, 0, struct.pack("<III", element, index, count))

    def struct(self, name: str, size: int, members: list[tuple[str, int, int]]) -> int:
        """A struct; members are (name, type, offset in bits)."""
        tail = b"".join(struct.pack("<III", self._string(n), t, o) for n, t, o in members)
        return self._add(name, STRUCT, size, tail, len(members))

    def variable(self, name: str, of: int) -> int:
        """A global variable."""
        return self._add(name, VAR, of, struct.pack("<I", 1))

    def section(self, name: str, size: int, variables: list[tuple[int, int, int]]) -> int:
        """A data section; variables are (type, offset, size)."""
        return self._add(name, DATASEC, size, b"".join(struct.pack("<III", *v) for v in variables), len(variables))

    def data(self) -> bytes:
        """The content of a .BTF section."""
        header = struct.pack("<HBBIIIII", MAGIC, 1, 0, 24, 0, len(self._types), len(self._types), len(self._strings))
        return header + bytes(self._types) + bytes(self._strings)


@dataclass(frozen=True)
class Type:
    """One record: kind, name, the size-or-type word, the raw tail and its number of elements."""

    kind: int
    name: str
    word: int
    tail: bytes
    vlen: int

    def members(self) -> list[tuple[int, int, int]]:
        """Three words an element: struct (name offset, type, bit offset), section (type, offset, size)."""
        return [struct.unpack_from("<III", self.tail, 12 * i) for i in range(self.vlen)]


class Btf:
    """Parsed types. Raises CorelaneError when the bytes are not well-formed."""

    def __init__(self, data: bytes) -> None:
        if len(data) < 24:
            raise CorelaneError(f".BTF section of {len(data)} bytes is shorter than its header")
        magic, version, _flags, hdr_len, type_off, type_len, str_off, str_len = struct.unpack_from("<HBBIIIII", data)
        if magic != MAGIC or version != 1:
            raise CorelaneError(f".BTF section has magic {magic:#06x}, version {version}; expected {MAGIC:#06x}, 1")
        if hdr_len + type_off + type_len > len(data) or hdr_len + str_off + str_len > len(data):
            raise CorelaneError(".BTF section is truncated")
        self._strings = data[hdr_len + str_off : hdr_len + str_off + str_len]
        self.types: list[Type] = [Type(0, "void", 0, b"", 0)]
        at, end = hdr_len + type_off, hdr_len + type_off + type_len
        while at < end:
            at = self._parse(data, at, end)

    def _parse(self, data: bytes, at: int, end: int) -> int:
        if at + 12 > end:
            raise CorelaneError(".BTF section ends inside a type")
        name_off, info, word = struct.unpack_from("<III", data, at)
        kind, vlen = info >> 24 & 0x1F, info & 0xFFFF
        if kind not in _TAIL:
            raise CorelaneError(f".BTF section has a type of unknown kind {kind}")
        fixed, each = _TAIL[kind]
        tail = data[at + 12 : at + 12 + fixed + each * vlen]
        if at + 12 + fixed + each * vlen > end:
            raise CorelaneError(".BTF section ends inside a type")
        self.types.append(Type(kind, self.string(name_off), word, tail, vlen))
        return at + len(tail) + 12

    def string(self, offset: int) -> str:
        """The string at an offset of the string table; empty if there is none."""
        stop = self._strings.find(b"\0", offset)
        return self._strings[offset:stop].decode(errors="replace") if 0 <= offset < len(self._strings) else ""

    def get(self, index: int) -> Type:
        """A type by id. Raises CorelaneError for an id out of range."""
        if not 0 <= index < len(self.types):
            raise CorelaneError(f".BTF section refers to type {index} of {len(self.types) - 1}")
        return self.types[index]

    def strip(self, index: int) -> Type:
        """A type with typedefs and qualifiers taken off."""
        for _ in range(64):
            found = self.get(index)
            if found.kind not in _ALIASES:
                return found
            index = found.word
        raise CorelaneError(".BTF section has a typedef that never ends")

    def size(self, index: int, depth: int = 0) -> int:
        """Bytes of a type. Raises CorelaneError for one without a size."""
        found = self.strip(index)
        if found.kind in (INT, STRUCT, UNION, ENUM, ENUM64, FLOAT, DATASEC):
            return int(found.word)
        if found.kind == PTR:
            return 8
        if found.kind == ARRAY and depth < 16:
            element, _, count = struct.unpack("<III", found.tail)
            return int(count) * self.size(element, depth + 1)
        raise CorelaneError(f".BTF type {found.name or index} has no size")

    def number(self, index: int) -> int:
        """N of a member `int (*name)[N]`, which is how map definitions spell numbers."""
        pointer = self.strip(index)
        array = self.strip(pointer.word) if pointer.kind == PTR else pointer
        if pointer.kind != PTR or array.kind != ARRAY:
            raise CorelaneError("a map attribute is not of the form `int (*name)[N]` (the __uint macro)")
        return int(struct.unpack("<III", array.tail)[2])
