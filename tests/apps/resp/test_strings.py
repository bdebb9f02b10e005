"""Strings, counters, expiry, bits and keys: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respcommands import bits, counters, keys, strings

Generated = Callable[..., None]


def test_strings(generated: Generated) -> None:
    generated(strings)


def test_counters(generated: Generated) -> None:
    generated(counters)


def test_keys(generated: Generated) -> None:
    generated(keys)


def test_bits(generated: Generated) -> None:
    generated(bits)
