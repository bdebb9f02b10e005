"""The load of the tests of real groups finds what it is there to find: against a store in this process that is made to
lose an acknowledged write, to do a command twice, or to answer from the past."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
from raftload import Load, Lost


class Store:
    """Memcached's commands on a dictionary. `fault`: what befalls the `at`-th command of that kind and every later one.
    A single one could stay unseen, and rightly: nobody has to read a lost write before the next one of that key."""

    def __init__(self, fault: str = "", at: int = 40) -> None:
        self.values: dict[str, tuple[str, int]] = {}
        self.past: dict[str, tuple[str, int]] = {}
        self.fault, self.left = fault, at
        self.versions = itertools.count(1)
        self.lock = threading.Lock()

    def strikes(self, fault: str) -> bool:
        """Whether it is time."""
        self.left -= self.fault == fault
        return self.fault == fault and self.left <= 0

    def command(self, text: str) -> str:
        """Apply a command."""
        first, *data = text.split("\r\n")
        word, key, *more = first.split()
        old = self.values.get(key)
        if word == "cas":
            if old is None or old[1] != int(more[3]):
                return "EXISTS" if old else "NOT_FOUND"
        elif word != "set" and old is None:
            return "NOT_STORED" if word == "append" else "NOT_FOUND"
        if word == "delete":
            del self.values[key]
            return "DELETED"
        before = old[0] if old else ""
        if word == "incr":
            value = reply = str(int(before) + int(more[0]) * (2 if self.strikes("twice") else 1))
            reply = str(int(before) + int(more[0]))
        else:
            value, reply = before * (word == "append") + data[0], "STORED"
        if word != "set" or not self.strikes("lost"):
            self.values[key] = (value, next(self.versions))
        return reply

    def query(self, text: str) -> str:
        """Read."""
        key = text.split()[1]
        found = self.values.get(key)
        if found and self.strikes("stale"):
            found = ("0" if key.startswith("n") else "<none>", 1)
        return f"VALUE {key} 0 {len(found[0])} {found[1]}\r\n{found[0]}\r\nEND" if found else "END"


class StoreClient:
    """What raftload needs of a client."""

    def __init__(self, store: Store) -> None:
        self.store, self.leader, self.resent = store, 1, 0

    def command(self, text: bytes) -> bytes:
        """As Client.command."""
        with self.store.lock:
            return self.store.command(text.decode()).encode() + b"\r\n"

    def query(self, text: bytes) -> bytes:
        """As Client.query."""
        with self.store.lock:
            return self.store.query(text.decode()).encode() + b"\r\n"

    def close(self) -> None:
        """Nothing."""


def _run(store: Store, folder: Path) -> None:
    with Load(lambda: StoreClient(store), 7) as load:  # type: ignore[arg-type,return-value]
        load.progress(200, "of a store in this process")
    load.read_all([StoreClient(store)])  # type: ignore[list-item]
    load.check(lambda: "seed 7", folder / "history")


def test_a_right_history_passes(tmp_path: Path) -> None:
    _run(Store(), tmp_path)


@pytest.mark.parametrize("fault", ["lost", "twice", "stale"])
def test_a_wrong_one_is_found(fault: str, tmp_path: Path) -> None:
    store = Store(fault)
    with pytest.raises(Lost, match="not linearizable") as caught:
        _run(store, tmp_path)
    assert store.left < 1
    assert "seed 7" in str(caught.value)
    assert (tmp_path / "history").read_text().count("client") > 200
