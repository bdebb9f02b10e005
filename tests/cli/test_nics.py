"""What `up` and `run` say of a load that they made."""

from __future__ import annotations

from types import SimpleNamespace

from corelane.cli.nics import describe_load


def test_a_load_in_words_and_in_numbers() -> None:
    tail = {"p50_us": 1.234, "p90_us": 99.9, "p99_us": 11_623.4, "p999_us": float("inf")}
    result = SimpleNamespace(
        sent=1000, offered_rps=1e4, answered=999, late=3, dropped=1, wrong=0, errors=2, percentiles=lambda: tail
    )
    generator = SimpleNamespace(result=lambda: result, other=lambda: {"stray": 1, "foreign": 0})
    line, numbers = describe_load("kv", generator)
    assert line == (
        "kv: 1,000 requests at 10,000/s, 999 answered, 3 late, 2 errors, 1 frames that answer nothing that was asked: "
        "p50 1.23 us, p90 99.9 us, p99 11,623 us, p99.9 inf us"
    )
    assert numbers["p999_us"] == "inf"
    assert numbers["strays"] == 1
