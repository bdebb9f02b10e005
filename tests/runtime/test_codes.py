"""Code in memory, and what a process tells of it (codes.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime import codes
from corelane.runtime.codes import Code
from corelane.runtime.memory_files import link_of

ONE = Code(0x1000, 0x1100, "mine.handler", "_ZN4mine7handler", b"\x7fELF of it")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file of another name: this process may have one of what it compiled before, and of two the first is read."""
    monkeypatch.setattr(codes, "_file", None)
    monkeypatch.setattr(codes, "NAME", "corelane-code-of-a-test")
    monkeypatch.setattr(codes, "LINK", link_of(codes.NAME))
    yield
    if codes._file:
        os.close(codes._file[1])


def test_what_is_told_is_read_by_whoever_may() -> None:
    other = Code(0x2000, 0x2001, "é", "x", b"")
    codes.tell(ONE)
    codes.tell(other)
    told = codes.of_process(os.getpid())
    assert [code for code in told if code in (ONE, other)] == [ONE, other]
    assert codes.of_process(2**22 + 1) == [], "there is none such"


def test_a_forked_process_tells_of_its_own_apart() -> None:
    codes.tell(ONE)
    own = Code(0x3000, 0x3010, "child", "child", b"elf")
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            codes.tell(own)
            told = codes.of_process(os.getpid())
            os.write(writes, b"y" if own in told and ONE in told else b"n")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        assert file.read() == b"y"
    assert own not in codes.of_process(os.getpid())


def test_there_is_room_for_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "MOST_BYTES", 200)
    for _ in range(10):
        codes.tell(ONE)
    told = [code for code in codes.of_process(os.getpid()) if code == ONE]
    assert 0 < len(told) < 10


@given(st.binary(max_size=100))
def test_garbage_is_no_code_or_some_that_is_as_long_as_it_says(data: bytes) -> None:
    for code in codes.read(data):
        assert code.begin < code.end
        assert code.elf in data
