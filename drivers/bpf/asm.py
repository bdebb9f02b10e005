"""A small eBPF assembler: methods append instructions, labels are names, maps are referred to by name.

    a = Assembler()
    a.load("u32", R2, R1, 0)              # r2 = *(u32 *)(r1 + 0)
    a.jump_if(R2, ">", 5, "pass")
    a.load_map(R1, "xsks")                # a relocation
    a.call(Helper.REDIRECT_MAP)
    a.exit()
    a.label("pass")
    a.move(R0, 2)
    a.exit()
    code = a.assemble()

Instruction encoding: 64 bits little endian, {opcode u8, dst u4 | src u4 << 4, offset s16, immediate s32}; a 64-bit
immediate load takes two (RFC 9669, "BPF Instruction Set Architecture").
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from ...runtime.errors import CorelaneError


class Reg(IntEnum):
    """Registers: R0 result, R1-R5 arguments (clobbered by calls), R6-R9 saved, R10 frame pointer (read only)."""

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4
    R5 = 5
    R6 = 6
    R7 = 7
    R8 = 8
    R9 = 9
    R10 = 10


R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = Reg


class Helper(IntEnum):
    """Numbers of the kernel helpers used here (enum bpf_func_id of linux/bpf.h)."""

    MAP_LOOKUP_ELEM = 1
    KTIME_GET_NS = 5
    REDIRECT_MAP = 51


# RFC 9669: instruction classes, sources, modes.
_LD, _LDX, _ST, _STX, _ALU, _JMP, _JMP32, _ALU64 = range(8)
_K, _X = 0x00, 0x08
_IMM, _MEM = 0x00, 0x60
_SIZES = {"u32": 0x00, "u16": 0x08, "u8": 0x10, "u64": 0x18}
_ALU_OPS = {
    "+": 0x00,
    "-": 0x10,
    "*": 0x20,
    "/": 0x30,
    "|": 0x40,
    "&": 0x50,
    "<<": 0x60,
    ">>": 0x70,
    "%": 0x90,
    "^": 0xA0,
    "=": 0xB0,
    "s>>": 0xC0,
}
_JUMP_OPS = {
    "==": 0x10,
    ">": 0x20,
    ">=": 0x30,
    "&": 0x40,
    "!=": 0x50,
    "s>": 0x60,
    "s>=": 0x70,
    "<": 0xA0,
    "<=": 0xB0,
    "s<": 0xC0,
    "s<=": 0xD0,
}
_ALU_END, _JA, _CALL, _EXIT = 0xD0, 0x00, 0x80, 0x90
_TO_BE = 0x08
PSEUDO_MAP_FD = 1  # src register of a 64-bit load whose immediate is a map's descriptor


@dataclass(frozen=True)
class Code:
    """Assembled instructions and what is left to relocate.

    map_refs: (byte offset of the 64-bit load, name of the map). labels: byte offset of every label.
    """

    text: bytes
    map_refs: tuple[tuple[int, str], ...]
    labels: dict[str, int]


def encode(opcode: int, dst: int = 0, src: int = 0, offset: int = 0, imm: int = 0) -> bytes:
    """One instruction. `imm` may be given signed or unsigned. Raises CorelaneError if a field does not fit."""
    if not -(1 << 31) <= imm < 1 << 32:
        raise CorelaneError(f"immediate {imm} does not fit into 32 bits: use load_imm64")
    if not -(1 << 15) <= offset < 1 << 15:
        raise CorelaneError(f"offset {offset} does not fit into 16 bits")
    if not (0 <= dst <= 10 and 0 <= src <= 10):
        raise CorelaneError(f"no such register: dst r{dst}, src r{src}")
    return struct.pack("<BBhI", opcode, dst | src << 4, offset, imm & 0xFFFFFFFF)


class Assembler:
    """Collects instructions; `assemble` resolves the labels. Every method appends exactly what its name says."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []
        self._map_refs: list[tuple[int, str]] = []

    def _emit(self, opcode: int, dst: int = 0, src: int = 0, offset: int = 0, imm: int = 0) -> None:
        self._text += encode(opcode, dst, src, offset, imm)

    @property
    def position(self) -> int:
        """Instruction slots so far."""
        return len(self._text) // 8

    def label(self, name: str) -> None:
        """The next instruction is called `name`. Raises CorelaneError if the name is taken."""
        if name in self._labels:
            raise CorelaneError(f"label {name!r} is defined twice")
        self._labels[name] = len(self._text)

    def alu(self, op: str, dst: Reg, src: Reg | int, bits: int = 64) -> None:
        """dst op= src, on 64 bits or on 32 (upper half zeroed). Ops: + - * / % | & ^ << >> s>> and = (move)."""
        if op not in _ALU_OPS:
            raise CorelaneError(f"no arithmetic {op!r}; known: {' '.join(_ALU_OPS)}")
        if bits not in (32, 64):
            raise CorelaneError(f"arithmetic on {bits} bits: only 32 or 64")
        if op in ("/", "%") and not isinstance(src, Reg) and src == 0:
            raise CorelaneError("division by the constant 0")
        kind = (_ALU64 if bits == 64 else _ALU) | _ALU_OPS[op]
        if isinstance(src, Reg):
            self._emit(kind | _X, dst, src)
        else:
            self._emit(kind | _K, dst, imm=src)

    def move(self, dst: Reg, src: Reg | int, bits: int = 64) -> None:
        """dst = src; a constant is sign-extended from 32 bits when bits is 64."""
        self.alu("=", dst, src, bits)

    def to_big_endian(self, dst: Reg, bits: int) -> None:
        """dst = the low 16, 32 or 64 bits of dst in network byte order."""
        if bits not in (16, 32, 64):
            raise CorelaneError(f"byte swap of {bits} bits: only 16, 32 or 64")
        self._emit(_ALU | _ALU_END | _TO_BE, dst, imm=bits)

    def load(self, size: str, dst: Reg, base: Reg, offset: int) -> None:
        """dst = *(size *)(base + offset), size one of u8 u16 u32 u64."""
        self._emit(_LDX | _MEM | _size(size), dst, base, offset)

    def store(self, size: str, base: Reg, offset: int, src: Reg | int) -> None:
        """*(size *)(base + offset) = src."""
        if isinstance(src, Reg):
            self._emit(_STX | _MEM | _size(size), base, src, offset)
        else:
            self._emit(_ST | _MEM | _size(size), base, 0, offset, src)

    def load_imm64(self, dst: Reg, value: int, src: int = 0) -> None:
        """dst = a 64-bit constant (two slots)."""
        value &= (1 << 64) - 1
        self._text += encode(_LD | _IMM | _SIZES["u64"], dst, src, 0, value & 0xFFFFFFFF)
        self._text += encode(0, 0, 0, 0, value >> 32)

    def load_map(self, dst: Reg, name: str) -> None:
        """dst = the map called `name`, by a relocation that the loader fills in."""
        self._map_refs.append((len(self._text), name))
        self.load_imm64(dst, 0)

    def jump(self, target: str) -> None:
        """Go to a label."""
        self._jumps.append((len(self._text), target))
        self._emit(_JMP | _JA)

    def jump_if(self, dst: Reg, op: str, src: Reg | int, target: str, bits: int = 64) -> None:
        """If dst op src go to a label. Ops: == != > >= < <= (unsigned), s> s>= s< s<= (signed), & (common bits)."""
        if op not in _JUMP_OPS:
            raise CorelaneError(f"no comparison {op!r}; known: {' '.join(_JUMP_OPS)}")
        kind = (_JMP if bits == 64 else _JMP32) | _JUMP_OPS[op]
        self._jumps.append((len(self._text), target))
        if isinstance(src, Reg):
            self._emit(kind | _X, dst, src)
        else:
            self._emit(kind | _K, dst, imm=src)

    def call(self, helper: Helper | int) -> None:
        """r0 = helper(r1..r5)."""
        self._emit(_JMP | _CALL, imm=int(helper))

    def exit(self) -> None:
        """Return r0."""
        self._emit(_JMP | _EXIT)

    def assemble(self) -> Code:
        """Resolve the labels. Raises CorelaneError for an unknown label, a jump too far, or an empty program."""
        if not self._text:
            raise CorelaneError("nothing to assemble")
        text = bytearray(self._text)
        for at, target in self._jumps:
            if target not in self._labels:
                raise CorelaneError(f"label {target!r} is not defined")
            distance = (self._labels[target] - at) // 8 - 1
            if not -(1 << 15) <= distance < 1 << 15:
                raise CorelaneError(f"jump to {target!r} is {distance} instructions far, more than 16 bits hold")
            struct.pack_into("<h", text, at + 2, distance)
        return Code(bytes(text), tuple(self._map_refs), dict(self._labels))


def _size(size: str) -> int:
    if size not in _SIZES:
        raise CorelaneError(f"no access size {size!r}; known: {' '.join(_SIZES)}")
    return _SIZES[size]
