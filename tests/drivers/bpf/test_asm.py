"""The assembler against encodings worked out from RFC 9669, and its refusals."""

from __future__ import annotations

import pytest

from corelane.drivers.bpf.asm import R0, R1, R2, R3, R6, R10, Assembler, Helper, Reg, encode
from corelane.runtime.errors import CorelaneError


def one(emit) -> str:
    a = Assembler()
    emit(a)
    return a.assemble().text.hex(" ")


# opcode, dst | src << 4, offset (16 bits, little endian), immediate (32 bits, little endian)
GOLDEN = {
    "r6 = r1": (lambda a: a.move(R6, R1), "bf 16 00 00 00 00 00 00"),
    "r0 = -1": (lambda a: a.move(R0, -1), "b7 00 00 00 ff ff ff ff"),
    "w0 = 2": (lambda a: a.move(R0, 2, bits=32), "b4 00 00 00 02 00 00 00"),
    "r2 += -12": (lambda a: a.alu("+", R2, -12), "07 02 00 00 f4 ff ff ff"),
    "r3 -= r2": (lambda a: a.alu("-", R3, R2), "1f 23 00 00 00 00 00 00"),
    "r1 *= 3": (lambda a: a.alu("*", R1, 3), "27 01 00 00 03 00 00 00"),
    "r1 &= 15": (lambda a: a.alu("&", R1, 15), "57 01 00 00 0f 00 00 00"),
    "w1 |= r2": (lambda a: a.alu("|", R1, R2, bits=32), "4c 21 00 00 00 00 00 00"),
    "r1 <<= 4": (lambda a: a.alu("<<", R1, 4), "67 01 00 00 04 00 00 00"),
    "r1 >>= r2": (lambda a: a.alu(">>", R1, R2), "7f 21 00 00 00 00 00 00"),
    "r1 s>>= 1": (lambda a: a.alu("s>>", R1, 1), "c7 01 00 00 01 00 00 00"),
    "r1 ^= r1": (lambda a: a.alu("^", R1, R1), "af 11 00 00 00 00 00 00"),
    "r1 %= 7": (lambda a: a.alu("%", R1, 7), "97 01 00 00 07 00 00 00"),
    "r1 = be16 r1": (lambda a: a.to_big_endian(R1, 16), "dc 01 00 00 10 00 00 00"),
    "r2 = *(u32 *)(r1 + 4)": (lambda a: a.load("u32", R2, R1, 4), "61 12 04 00 00 00 00 00"),
    "r2 = *(u16 *)(r1 + 12)": (lambda a: a.load("u16", R2, R1, 12), "69 12 0c 00 00 00 00 00"),
    "r2 = *(u8 *)(r1 - 1)": (lambda a: a.load("u8", R2, R1, -1), "71 12 ff ff 00 00 00 00"),
    "r2 = *(u64 *)(r10 - 8)": (lambda a: a.load("u64", R2, R10, -8), "79 a2 f8 ff 00 00 00 00"),
    "*(u32 *)(r10 - 4) = r2": (lambda a: a.store("u32", R10, -4, R2), "63 2a fc ff 00 00 00 00"),
    "*(u64 *)(r10 - 8) = 7": (lambda a: a.store("u64", R10, -8, 7), "7a 0a f8 ff 07 00 00 00"),
    "*(u8 *)(r1 + 0) = 1": (lambda a: a.store("u8", R1, 0, 1), "72 01 00 00 01 00 00 00"),
    "r1 = 0x1122334455667788 ll": (
        lambda a: a.load_imm64(R1, 0x1122334455667788),
        "18 01 00 00 88 77 66 55 00 00 00 00 44 33 22 11",
    ),
    "call 51": (lambda a: a.call(Helper.REDIRECT_MAP), "85 00 00 00 33 00 00 00"),
    "exit": (lambda a: a.exit(), "95 00 00 00 00 00 00 00"),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_encodings(text):
    emit, wanted = GOLDEN[text]
    assert one(emit) == wanted


JUMPS = {"==": 0x15, ">": 0x25, ">=": 0x35, "&": 0x45, "!=": 0x55, "s>": 0x65, "<": 0xA5, "<=": 0xB5, "s<=": 0xD5}


@pytest.mark.parametrize("op", JUMPS)
def test_jumps_count_instructions_from_the_next_one(op):
    a = Assembler()
    a.label("back")
    a.jump_if(R1, op, 9, "on")
    a.jump_if(R1, op, R2, "back")
    a.jump_if(R1, op, 9, "on", bits=32)
    a.label("on")
    a.exit()
    text = a.assemble().text
    assert text[0:8] == bytes([JUMPS[op], 1, 2, 0, 9, 0, 0, 0])
    assert text[8:16] == bytes([JUMPS[op] | 8, 0x21, 0xFE, 0xFF, 0, 0, 0, 0])
    assert text[16:24] == bytes([JUMPS[op] + 1, 1, 0, 0, 9, 0, 0, 0])  # class JMP32 is 6, JMP 5


def test_an_unconditional_jump_over_a_64_bit_load_counts_both_slots():
    a = Assembler()
    a.jump("end")
    a.load_map(R1, "m")
    a.label("end")
    a.exit()
    code = a.assemble()
    assert code.text[:8] == bytes([0x05, 0, 2, 0, 0, 0, 0, 0])
    assert code.map_refs == ((8, "m"),)
    assert code.labels == {"end": 24}
    assert a.position == 4


def assemble(*steps) -> None:
    a = Assembler()
    for step in steps:
        step(a)
    a.assemble()


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([], "nothing to assemble"),
        ([lambda a: a.jump("nowhere")], "label 'nowhere' is not defined"),
        ([lambda a: a.label("x"), lambda a: a.label("x")], "label 'x' is defined twice"),
        ([lambda a: a.move(R1, 1 << 32)], "does not fit into 32 bits"),
        ([lambda a: a.load("u32", R1, R2, 40000)], "does not fit into 16 bits"),
        ([lambda a: a.load("u128", R1, R2, 0)], "no access size 'u128'"),
        ([lambda a: a.alu("**", R1, 2)], "no arithmetic"),
        ([lambda a: a.alu("/", R1, 0)], "division by the constant 0"),
        ([lambda a: a.alu("+", R1, 1, bits=16)], "only 32 or 64"),
        ([lambda a: a.to_big_endian(R1, 24)], "only 16, 32 or 64"),
        ([lambda a: a.jump_if(R1, "=", 0, "x")], "no comparison"),
        ([lambda a: a.jump("far"), *[lambda a: a.exit()] * 33000, lambda a: a.label("far")], "33000 instructions far"),
    ],
)
def test_what_cannot_be_assembled_is_refused(steps, reason):
    with pytest.raises(CorelaneError, match=reason.replace("(", r"\(")):
        assemble(*steps)


def test_only_the_eleven_registers_exist():
    with pytest.raises(CorelaneError, match="no such register"):
        encode(0xBF, dst=11)
    assert [int(r) for r in Reg] == list(range(11))
