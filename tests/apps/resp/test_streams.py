"""Streams: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respcommands import streams

Generated = Callable[..., None]


def test_streams(generated: Generated) -> None:
    generated(streams)
