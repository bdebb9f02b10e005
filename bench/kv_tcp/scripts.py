"""What clients ask and what they must be answered: GETs of a key space under Zipf's law, drawn once from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

LINES = 60_000  # of a script; each connection goes through all of them, from a place of its own on
SEED = 7
Script = Sequence[tuple[bytes, bytes]]
Forms = tuple[Callable[[int], bytes], Callable[[int], bytes]]  # of a request and its answer


@dataclass(frozen=True)
class Space:
    """Keys of 16 bytes, their values, and how often each is asked for: Zipf with exponent `zipf`."""

    keys: int
    value_bytes: int = 64
    zipf: float = 0.99

    def key(self, i: int) -> bytes:
        return b"key-%012d" % i

    def value(self, i: int) -> bytes:
        """A value that only this key has."""
        return (b"%d-" % i * self.value_bytes)[: self.value_bytes]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return ((self.key(i), self.value(i)) for i in range(self.keys))

    def drawn(self, count: int) -> list[int]:
        """Keys by their numbers, as they are asked for. The popular ones lie anywhere in the key space."""
        random = np.random.default_rng(SEED)
        weights = 1.0 / np.arange(1, self.keys + 1) ** self.zipf
        ranks = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count))
        place = random.permutation(self.keys)
        return [int(place[min(rank, self.keys - 1)]) for rank in ranks]

    def memcached(self, pipeline: int = 1, lines: int = 0, sets: float = 0.0) -> Script:
        """GETs of memcached's ASCII protocol, so many in one request; lines: LINES by default. sets: the share of
        requests that store the value again instead."""
        return self._lines(pipeline, lines, (self._get, self._value), (self._set, lambda _: b"STORED\r\n"), sets)

    def redis(self, pipeline: int = 1, lines: int = 0, sets: float = 0.0) -> Script:
        """The same in RESP."""
        put = (self._resp_set, lambda _: b"+OK\r\n")
        return self._lines(pipeline, lines, (self._resp_get, self._resp_value), put, sets)

    def redis_sets(self) -> Script:
        """SETs in RESP, one in each request."""
        return self.redis(sets=1.0)

    def stores(self, protocol: str) -> Iterator[tuple[bytes, bytes]]:
        """A request that stores each item, and its answer, by "memcached" or "redis"."""
        forms = {"memcached": (self._set, b"STORED\r\n"), "redis": (self._resp_set, b"+OK\r\n")}
        ask, answer = forms[protocol]
        return ((ask(i), answer) for i in range(self.keys))

    def _lines(self, pipeline: int, lines: int, get: Forms, put: Forms, sets: float) -> Script:
        numbers = self.drawn(pipeline * (lines or LINES))
        puts = np.random.default_rng(SEED + 1).random(len(numbers)) < sets
        chosen = (put if is_put else get for is_put in puts)
        pairs = [(ask(i), answer(i)) for i, (ask, answer) in zip(numbers, chosen, strict=False)]
        groups = (pairs[i : i + pipeline] for i in range(0, len(pairs), pipeline))
        return [(b"".join(ask for ask, _ in group), b"".join(answer for _, answer in group)) for group in groups]

    def _get(self, i: int) -> bytes:
        return b"get %b\r\n" % self.key(i)

    def _set(self, i: int) -> bytes:
        return b"set %b 0 0 %d\r\n%b\r\n" % (self.key(i), self.value_bytes, self.value(i))

    def _value(self, i: int) -> bytes:
        return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (self.key(i), self.value_bytes, self.value(i))

    def _resp_get(self, i: int) -> bytes:
        return b"*2\r\n$3\r\nGET\r\n$16\r\n%b\r\n" % self.key(i)

    def _resp_set(self, i: int) -> bytes:
        form = b"*3\r\n$3\r\nSET\r\n$16\r\n%b\r\n$%d\r\n%b\r\n"
        return form % (self.key(i), self.value_bytes, self.value(i))

    def _resp_value(self, i: int) -> bytes:
        return b"$%d\r\n%b\r\n" % (self.value_bytes, self.value(i))
