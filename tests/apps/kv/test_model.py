"""The store against a dict: any sequence of operations, with time passing, gives what the model gives."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from cltest import soak
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from corelane.apps.kv import Store

KEYS = [b"a", b"bb", b"key-of-16-bytes!", b"x" * 250]
keys = st.sampled_from(KEYS)
values = st.one_of(st.binary(max_size=300), st.integers(0, 2**64 - 1).map(lambda n: b"%d" % n))
lifetimes = st.sampled_from([0, 0, 0, 1, 5, 60])


@dataclass
class Entry:
    value: bytes
    flags: int
    expires_s: int
    cas: int


class Machine(RuleBasedStateMachine):
    """Model: a dict of entries, a clock, and the counter that uniques are drawn from."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(1 << 20, item_max_bytes=1024, manual_clock=True, seed=3, huge_pages=0)
        self.model: dict[bytes, Entry] = {}
        self.now_s = 2
        self.flush_at_s = 0
        self.unique = 0

    def live(self, key: bytes) -> Entry | None:
        if self.flush_at_s and self.flush_at_s <= self.now_s:
            self.model.clear()
            self.flush_at_s = 0
            self.unique += 1
        entry = self.model.get(key)
        if entry and entry.expires_s and entry.expires_s <= self.now_s:
            del self.model[key]
            return None
        return entry

    def put(self, key: bytes, value: bytes, flags: int, expires_s: int) -> None:
        self.unique += 1
        self.model[key] = Entry(value, flags, expires_s, self.unique)

    def until(self, lifetime_s: int) -> int:
        return self.now_s + lifetime_s if lifetime_s else 0

    @rule(key=keys, value=values, flags=st.integers(0, 2**32 - 1), lifetime=lifetimes)
    def set(self, key: bytes, value: bytes, flags: int, lifetime: int) -> None:
        self.live(key)
        assert self.store.store(key, value, flags=flags, expires_s=self.until(lifetime)) == "ok"
        self.put(key, value, flags, self.until(lifetime))

    @rule(key=keys, value=values, lifetime=lifetimes)
    def add(self, key: bytes, value: bytes, lifetime: int) -> None:
        there = self.live(key)
        outcome = self.store.store(key, value, mode="add", expires_s=self.until(lifetime))
        assert outcome == ("not_stored" if there else "ok")
        if not there:
            self.put(key, value, 0, self.until(lifetime))

    @rule(key=keys, value=values)
    def replace(self, key: bytes, value: bytes) -> None:
        there = self.live(key)
        assert self.store.store(key, value, mode="replace", flags=7) == ("ok" if there else "not_stored")
        if there:
            self.put(key, value, 7, 0)

    @rule(key=keys, value=values, mode=st.sampled_from(["append", "prepend"]))
    def join(self, key: bytes, value: bytes, mode: str) -> None:
        there = self.live(key)
        joined = (there.value + value if mode == "append" else value + there.value) if there else b""
        fits = len(key) + len(joined) + 48 <= 1024
        assert self.store.store(key, value, mode=mode, flags=9) == ("ok" if there and fits else "not_stored")
        if there and fits:
            self.put(key, joined, there.flags, there.expires_s)

    @rule(key=keys, value=values, right=st.booleans())
    def cas(self, key: bytes, value: bytes, right: bool) -> None:
        there = self.live(key)
        unique = there.cas if there and right else 2**63
        outcome = self.store.store(key, value, mode="cas", flags=1, cas=unique)
        assert outcome == ("not_found" if not there else "ok" if right else "exists")
        if there and right:
            self.put(key, value, 1, 0)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        there = self.live(key)
        assert self.store.get(key) == ((there.value, there.flags, there.cas) if there else None)

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        there = self.live(key)
        assert self.store.delete(key) == (there is not None)
        self.model.pop(key, None)

    @rule(key=keys, lifetime=lifetimes)
    def touch(self, key: bytes, lifetime: int) -> None:
        there = self.live(key)
        assert self.store.touch(key, self.until(lifetime)) == (there is not None)
        if there:
            there.expires_s = self.until(lifetime)

    @rule(key=keys, amount=st.one_of(st.integers(-(2**64) + 1, 2**64 - 1), st.integers(-20, 20)))
    def delta(self, key: bytes, amount: int) -> None:
        there = self.live(key)
        outcome = self.store.delta(key, amount)
        if not there:
            assert outcome == "not_found"
        elif not there.value.isdigit() or int(there.value) >= 2**64:
            # The odd forms of numbers (blanks, signs) are compared with memcached, not here.
            if isinstance(outcome, int):
                now = self.store.get(key)
                assert now
                self.put(key, now[0], there.flags, there.expires_s)
                assert int(now[0]) == outcome
            else:
                assert outcome == "non_numeric"
        else:
            old = int(there.value)
            new = (old + amount) % 2**64 if amount >= 0 else max(old + amount, 0)
            assert outcome == new
            self.put(key, (b"%d" % new).ljust(len(there.value)), there.flags, there.expires_s)

    @rule(delay=st.sampled_from([0, 0, 3]))
    def flush_all(self, delay: int) -> None:
        self.live(KEYS[0])
        self.store.get(KEYS[0])  # a flush that is due is applied by the next look, in the model as in the store
        self.store.flush_all(self.now_s + delay)
        if delay:
            self.flush_at_s = self.now_s + delay
        else:
            self.model.clear()
            self.flush_at_s = 0
            self.unique += 1

    @rule(seconds=st.integers(1, 10))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds
        self.store.time_s = self.now_s

    @rule()
    def sweep(self) -> None:
        self.live(KEYS[0])
        for key in KEYS:
            self.live(key)
        self.store.sweep()
        assert self.store.usage()["items"] == len(self.model)

    @invariant()
    def consistent(self) -> None:
        self.store.check()
        usage = self.store.usage()
        assert usage["live_bytes"] + usage["dead_bytes"] + usage["free_bytes"] == usage["log_bytes"]
        assert usage["evictions"] == usage["index_evictions"] == 0

    def teardown(self) -> None:
        self.store.close()


Machine.TestCase.settings = settings(max_examples=soak.examples(60, 600), stateful_step_count=50)
TestModel = pytest.mark.soak(short=True, takes_s=10)(Machine.TestCase)
