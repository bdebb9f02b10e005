"""Clients of a real Raft group: sessions that work at once, what they asked and were told, and whether that fits.

Every session is a thread with its own socket. It gets, sets, compares and swaps, appends, increments and deletes; all
values it writes are its own, so that a swap that is refused means that the value was another one. What a call that came
to no answer did is unknown to the checker, and the session goes on.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cltest import wait_until
from raftreal import IDS, SOAK_S, Group

from corelane.apps.raft.service.client import Client, NotSent, Unknown
from corelane.apps.raft.sim.history import History, Kind, Operation, Value, Verdict

KEYS = 4
"""Texts and counters at a time."""
PAUSE_S = 0.0 if SOAK_S else 0.002
"""Between two operations of a session: without it most of what make test takes here is clients' time."""
OPS_A_GENERATION = 240
"""Operations of all sessions until they go on to other keys: the search grows with a key's history."""


class Lost(AssertionError):
    """A history that is not linearizable."""


class Session(threading.Thread):
    """One client under load. `done` counts answers; `failed` is what ended it, if something did."""

    def __init__(
        self, number: int, make: Callable[[], Client], seed: int, history: History, a_generation: int = 1
    ) -> None:
        super().__init__(name=f"raft-session-{number}", daemon=True)
        self.number, self.history, self._a_generation = number, history, a_generation
        self._make, self._random = make, random.Random(seed)
        self.done = self.unknown = self._count = 0
        self.failed: BaseException | None = None
        self.client = make()
        self.over = threading.Event()

    def run(self) -> None:
        try:
            while not self.over.wait(PAUSE_S):
                self._one()
        except BaseException as error:
            self.failed = error
        finally:
            self.client.close()

    def _one(self) -> None:
        generation = self._count // self._a_generation
        self._count += 1
        number = self._random.randrange(KEYS)
        text, counter = f"t{number}-{generation}", f"n{number}-{generation}"
        value = f"<{self.number}.{self._count}>"
        draw = self._random.random()
        if draw < 0.25:
            self.get(self._random.choice([text, counter]))
        elif draw < 0.4:
            self.command("put", text, value)
        elif draw < 0.6:
            self.command("append", text, value)
        elif draw < 0.7:
            self.swap(text, value)
        elif draw < 0.73:
            self.command("delete", text)
        elif draw < 0.78:
            self.add_counter(counter)
        else:
            self.command("add", counter, 1 + self._random.randrange(9))

    def _call(self, op: Operation, call: Callable[[], bytes]) -> bytes | None:
        """The answer, or None if none came: then the operation's outcome stays unknown."""
        try:
            reply = call()
        except (Unknown, NotSent):
            self.unknown += 1
            return None
        op.returned = time.monotonic_ns()  # before anything else takes time: a later return only makes the check weaker
        self.done += 1
        return reply

    def _invoke(self, kind: Kind, key: str, value: Value = None, **more: object) -> Operation:
        return self.history.invoke(self.number, kind, key, value, at=time.monotonic_ns(), **more)  # type: ignore[arg-type]

    def get(self, key: str) -> tuple[str | int | None, int]:
        """The value (a number for counters), and what `cas` wants as its version."""
        op = self._invoke("get", key)
        reply = self._call(op, lambda: self.client.query(f"gets {key}\r\n".encode()))
        if reply is None:
            return None, -1
        if reply == b"END\r\n":
            return None, 0
        first, data, end = reply.split(b"\r\n")[:3]
        assert end == b"END", reply
        op.result = int(data) if key.startswith("n") else data.decode()
        return op.result, int(first.split()[4])

    def swap(self, key: str, value: str) -> None:
        """Read, then write unless somebody wrote in between."""
        found, version = self.get(key)
        if version <= 0 or not isinstance(found, str):
            return
        op = self._invoke("cas", key, value, expected=found)
        text = f"cas {key} 0 0 {len(value)} {version}\r\n{value}\r\n".encode()
        reply = self._call(op, lambda: self.client.command(text))
        if reply is not None:
            assert reply in (b"STORED\r\n", b"EXISTS\r\n", b"NOT_FOUND\r\n"), reply
            op.refused = reply != b"STORED\r\n"

    def add_counter(self, key: str) -> None:
        """Begin a counter, anew."""
        self._finish(self._invoke("put", key, 0), f"set {key} 0 0 1\r\n0\r\n")

    def command(self, kind: Kind, key: str, value: str | int | None = None) -> None:
        """put, append, add or delete."""
        op = self._invoke(kind, key, value, needs_key=kind in ("append", "add"))
        if kind in ("put", "append"):
            word = "set" if kind == "put" else "append"
            self._finish(op, f"{word} {key} 0 0 {len(str(value))}\r\n{value}\r\n")
        else:
            self._finish(op, f"incr {key} {value}\r\n" if kind == "add" else f"delete {key}\r\n")

    def _finish(self, op: Operation, text: str) -> None:
        reply = self._call(op, lambda: self.client.command(text.encode()))
        if reply is None:
            return
        op.refused = reply in (b"NOT_STORED\r\n", b"NOT_FOUND\r\n")
        if op.kind == "add" and not op.refused:
            op.result = int(reply)
        elif not op.refused:
            assert reply in (b"STORED\r\n", b"DELETED\r\n"), reply


class Load:
    """Sessions against a group, as a context; `check` afterwards. `make(number)` makes a client."""

    def __init__(
        self, make: Callable[[], Client], seed: int, sessions: int = 4, session: type[Session] = Session
    ) -> None:
        self._make, self._session = make, session
        self.history = History()
        each = OPS_A_GENERATION // sessions
        self.sessions = [session(n, make, seed * 1000 + n, self.history, each) for n in range(sessions)]

    def __enter__(self) -> Load:
        for session in self.sessions:
            session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let every session finish what it is doing."""
        for session in self.sessions:
            session.over.set()
        for session in self.sessions:
            session.join(60)

    @property
    def done(self) -> int:
        """Answers so far."""
        return sum(s.done for s in self.sessions)

    def leader(self) -> int:
        """The node that answered last as a leader, by what the sessions were told; 0 if none."""
        told = [s.client.leader for s in self.sessions]
        return max(set(told), key=told.count)

    def raise_failures(self) -> None:
        """Raise what ended a session."""
        for session in self.sessions:
            if session.failed:
                raise AssertionError(f"session {session.number} failed: {session.failed!r}") from session.failed

    def progress(self, each: int, what: str, deadline_s: float = 60.0) -> None:
        """Wait until every session has got that many more answers."""
        before = [s.done for s in self.sessions]

        def all_went_on() -> bool:
            self.raise_failures()
            return all(s.done >= b + each for s, b in zip(self.sessions, before, strict=True))

        wait_until(all_went_on, deadline_s, f"{each} more answers to every session {what}")

    def read_all(self, clients: Sequence[Client]) -> None:
        """Read every key once more, into the history, by each of the clients in turn."""
        for number, client in enumerate(clients):
            reader = self._session(1000 + number, lambda c=client: c, 0, self.history)  # type: ignore[misc]
            for key in sorted({str(op.key) for op in self.history.operations}):
                _, version = reader.get(key)
                assert version >= 0, f"no answer to the last read of {key}"

    def check(self, told: Callable[[], str], save: Path) -> Verdict:
        """The verdict. The history goes to `save`. Raises Lost, with what `told` says, if it is not right."""
        self.raise_failures()
        verdict = self.history.check()
        save.write_text("\n".join(str(op) for op in self.history.operations))
        if not verdict.right:
            raise Lost(f"{verdict}\nthe whole history is in {save}\n{told()}")
        return verdict


@contextlib.contextmanager
def loaded(group: Group, folder: Path, seed: int, sessions: int = 4) -> Iterator[Load]:
    """A started group under load; afterwards all is read by each node, and checked."""

    def told() -> str:
        return f"seed {seed}\n{group.last_words()}"

    try:
        group.start(*IDS)
        with Load(group.client, seed, sessions) as load:
            load.progress(3, "at the start")
            yield load
            load.progress(3, "at the end")
        load.read_all([group.client(i) for i in IDS])
        load.check(told, folder / "history")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told()}") from error
    print(f"{load.done} answers; {'; '.join(group.events)}")
