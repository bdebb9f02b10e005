"""Exceptions among the constants of compiled code: read, and rewritten as words."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from corelane.libos.numba.raises import Raise, _bytes_of, in_words, raises


def module(value: object, how: str = "  store ptr @.const.picklebuf.ab, ptr %e, align 8") -> str:
    """LLVM's text with a constant as numba has it, and an instruction that uses it."""
    raw = value if isinstance(value, bytes) else pickle.dumps(value)
    text = "".join(f"\\{byte:02X}" for byte in raw)
    return (
        f'@.const.pickledata.ab = internal constant [{len(raw)} x i8] c"{text}"\n'
        f"@.const.picklebuf.ab = internal constant {{ ptr, i32 }} {{ ptr @.const.pickledata.ab, i32 {len(raw)} }}\n"
        f"define void @f(ptr %e) {{\n{how}\n}}\n"
    )


def said(text: str) -> list[bytes]:
    """The constant, up to its last NUL bytes."""
    line = next(line for line in text.splitlines() if line.startswith("@.const.pickledata.ab"))
    return _bytes_of(line.partition('"')[2].rstrip('"')).rstrip(b"\0").split(b"\0")


def test_a_backslash_in_llvm_text_is_one_byte() -> None:
    """A pickle of 92 bytes holds a backslash: its length."""
    assert _bytes_of(r"\80\04\95\\\00ab\22") == b'\x80\x04\x95\\\x00ab"'


WHERE = ("total", "/srv/shop.py", 33)
PLACE = b'File "/srv/shop.py", line 33, in total'


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), b"ValueError"),
        (None, b"ValueError"),
        (("no such thing",), b"ValueError: no such thing"),
        (("two\nlines",), b"ValueError: two lines"),
        (("nul\0s",), b"ValueError: nul?s"),
        (("größer",), "ValueError: größer".encode()),
        (("above", 9), b"ValueError: ('above', 9)"),
    ],
)
def test_words_take_the_place_of_a_pickle_and_its_length(args: Any, words: bytes) -> None:
    before = module((ValueError, args, WHERE))
    after = in_words(before)
    assert said(after) == [words, PLACE]
    assert len(after) == len(before)
    assert after.splitlines()[1:] == before.splitlines()[1:]


def test_words_that_are_too_long_are_cut_and_the_place_stays() -> None:
    words, place = said(in_words(module((ValueError, ("\x01" * 100, 0), WHERE))))
    assert words.startswith(b"ValueError: ('\\x01\\x01")
    assert place == PLACE


def test_of_some_the_place_is_not_known() -> None:
    assert said(in_words(module((ZeroDivisionError, ("division by zero",), None)))) == [
        b"ZeroDivisionError: division by zero"
    ]


@pytest.mark.parametrize("other", [(1, 2), "text", (ValueError,), (int, (), None), b"\x80no pickle", b"\x80\x05."])
def test_what_is_no_exception_stays_as_it_is(other: object) -> None:
    text = module(other)
    assert in_words(text) == text
    assert list(raises(text)) == []


def test_what_may_be_raised() -> None:
    value = (ValueError, ("nought",), WHERE)
    found = Raise(ValueError, ("nought",), "/srv/shop.py", 33, "total")
    assert list(raises(module(value))) == [found]
    assert list(raises(module(value, "  store ptr @.const.pickledata.ab, ptr %e"))) == [found], "with values"
    assert list(raises(module(value, "  %p = phi ptr [ null, %a ], [ @.const.picklebuf.ab, %b ]"))) == [found]
    assert list(raises(module(value, "  ret void"))) == [], "nothing uses it"
    assert list(raises(module((RuntimeError, ("missing Environment: f",), WHERE)))) == []
