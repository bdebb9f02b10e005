"""Latency of services: kthreads that record, and a reader that looks meanwhile. What the iokernel makes of it:
tests/iokernel/control/test_services.py."""

from typing import Any


def test_a_reader_sees_every_record_and_no_more(c_program: Any) -> None:
    assert "consistent" in c_program("tests/runtime/c/latency.c", ["runtime/hist.c"])()
