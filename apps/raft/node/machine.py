"""A state machine written in Python, as `struct cl_raft_machine` (node.h). A call into it costs about a microsecond."""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from ....runtime.errors import Refused
from ..._native import ffi, lib

_LOGGER = logging.getLogger("corelane.raft")
WHY_BYTES = 150
"""Of what was raised so much is told."""


class CommandRefused(Refused):
    """A state machine's no. Raised by its `apply` or `query`, on every replica alike; `Client` raises it again.

    reply: what the client is told, bytes.
    """

    def __init__(self, reply: bytes) -> None:
        super().__init__("do a command", f"the state machine refused it: {reply.decode(errors='replace')}")
        self.reply = reply


class Machine(Protocol):
    """A state machine. `apply` must be deterministic, also in what it refuses.

    To refuse, raise CommandRefused, before anything is changed: on all replicas the command counts as applied. After
    any other exception in `apply` this replica's state may not be the others' any more, so its node stops and says what
    was raised. A command that nobody can apply would stop them all, and again at each start. Three things keep it out:
    refuse it; have `check` keep it out of the log (CheckedMachine); or be atomic (AtomicMachine). Replies are bytes.
    One that is longer than reply_bytes is not sent; the client is told so.
    """

    def apply(self, command: bytes) -> bytes:
        """Carry out a command; returns the reply."""

    def query(self, query: bytes) -> bytes:
        """Answer a read; changes nothing. The client is told what it raises."""

    def save(self) -> bytes:
        """The whole state. If it raises there is no snapshot; it is asked again later."""

    def load(self, state: bytes) -> None:
        """Become what `save` saved. If it raises the node stops."""


class CheckedMachine(Machine, Protocol):
    """A machine that has commands checked before they enter the log, by the node that leads."""

    def check(self, command: bytes) -> None:
        """Raise CommandRefused, or anything else, and the command is refused. It may look at the command alone."""


class SeededMachine(Machine, Protocol):
    """A machine that needs a random word, say for a hash: the same on all replicas, and known to nobody outside."""

    def seed(self, word: int) -> None:
        """Take it, before the first command. It belongs to what `save` saves."""


class AtomicMachine(Machine, Protocol):
    """A machine with `atomic = True`: an `apply` that raises has changed nothing, and raises on every replica alike.

    The client is told what was raised (CommandFailed), and the nodes go on. A node stops all the same if `apply` raises
    MemoryError, which only one replica may meet, or what is no Exception, or if it does not return bytes. Do not turn
    what one replica alone meets, such as OSError, into another exception: let it end the process.
    """

    atomic: bool


def _put(out: Any, room: int, data: bytes) -> int:
    """Copy what fits; how much there was."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"the state machine returned {type(data).__name__} in the place of bytes")
    ffi.memmove(out, data, min(len(data), room))
    return len(data)


def _text(error: BaseException) -> bytes:
    """What was raised, and where."""
    where = traceback.extract_tb(error.__traceback__)
    at = f" ({where[-1].filename.rsplit('/', 1)[-1]}:{where[-1].lineno})" if where else ""
    whole = f"{type(error).__name__}: {error}{at}".encode(errors="backslashreplace")
    return whole[:WHY_BYTES].decode(errors="ignore").encode()  # not cut inside a letter


def machine_struct(machine: Machine) -> tuple[dict[str, Any], list[Any]]:
    """A `struct cl_raft_machine` that calls `machine`, and what has to be kept alive with it."""
    state = {"saved": b"", "failed": b""}
    loading = bytearray()
    why = ffi.new("char[160]")

    def failed(error: BaseException) -> int:
        text = _text(error)
        ffi.memmove(why, text + b"\0", len(text) + 1)
        return -errno.EIO

    def answered(call: Callable[[bytes], bytes], data: Any, n: int, out: Any, room: int) -> int:
        refuses = 0
        try:
            reply = call(bytes(ffi.buffer(data, n)))
        except CommandRefused as refused:
            reply, refuses = refused.reply, int(lib.CL_RAFT_REFUSES)
        except BaseException as error:
            rc = failed(error)
            here_alone = isinstance(error, MemoryError) or not isinstance(error, Exception)
            return -errno.ENOTRECOVERABLE if here_alone else rc
        try:
            return refuses | _put(out, room, reply)
        except TypeError as error:
            failed(error)
            return -errno.ENOTRECOVERABLE  # for what `call` did is done

    def apply(_arg: Any, _index: int, _clock: int, data: Any, n: int, out: Any, room: int) -> int:
        return answered(machine.apply, data, n, out, room)

    def check(_arg: Any, data: Any, n: int, out: Any, room: int) -> int:
        def checked(command: bytes) -> bytes:
            machine.check(command)  # type: ignore[attr-defined]  # a CheckedMachine
            return b""

        return answered(checked, data, n, out, room)

    def seed(_arg: Any, word: int) -> None:
        try:
            machine.seed(word)  # type: ignore[attr-defined]  # a SeededMachine
        except BaseException as error:
            _LOGGER.error("the state machine does not take its random word: %s", _text(error).decode(errors="replace"))

    def query(_arg: Any, _clock: int, data: Any, n: int, out: Any, room: int) -> int:
        return answered(machine.query, data, n, out, room)

    def save(_arg: Any, at: int, out: Any, room: int) -> int:
        try:
            if at == 0:
                state["saved"] = machine.save()
                state["failed"] = b""
            return _put(out, room, state["saved"][at : at + room])
        except BaseException as error:
            if not state["failed"]:  # it is asked again and again
                _LOGGER.error("the state machine cannot save its state: %s", _text(error).decode(errors="replace"))
            state["failed"] = b"yes"
            return failed(error)

    def load(_arg: Any, at: int, data: Any, n: int, total: int) -> int:
        try:
            if at == 0:
                loading.clear()
            loading.extend(ffi.buffer(data, n))
            if at + n == total:
                whole = bytes(loading)
                loading.clear()
                machine.load(whole)
        except BaseException as error:
            return failed(error)
        return 0

    calls = {
        "apply": ffi.callback(
            "int64_t(void *, uint64_t, uint64_t, const uint8_t *, uint32_t, uint8_t *, uint32_t)", apply, error=-5
        ),
        "query": ffi.callback(
            "int64_t(void *, uint64_t, const uint8_t *, uint32_t, uint8_t *, uint32_t)", query, error=-5
        ),
        "save": ffi.callback("int64_t(void *, uint64_t, uint8_t *, uint64_t)", save, error=-5),
        "load": ffi.callback("int(void *, uint64_t, const uint8_t *, uint64_t, uint64_t)", load, error=-5),
        "why": ffi.callback("const char *(void *)", lambda _: why),
    }
    if hasattr(machine, "check"):
        form = "int64_t(void *, const uint8_t *, uint32_t, uint8_t *, uint32_t)"
        calls["check"] = ffi.callback(form, check, error=-5)
    if hasattr(machine, "seed"):
        calls["seed"] = ffi.callback("void(void *, uint64_t)", seed)
    atomic = int(bool(getattr(machine, "atomic", False)))
    return {"arg": ffi.NULL, "atomic": atomic, **calls}, [*calls.values(), why]
