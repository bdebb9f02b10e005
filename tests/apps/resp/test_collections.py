"""Hashes, lists and sets: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respcommands import hashes, lists, sets, sorting

Generated = Callable[..., None]


def test_hashes(generated: Generated) -> None:
    generated(hashes)


def test_lists(generated: Generated) -> None:
    generated(lists)


def test_sets(generated: Generated) -> None:
    generated(sets)


def test_sorting(generated: Generated) -> None:
    generated(sorting)
