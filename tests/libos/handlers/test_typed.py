"""Requests in queues by type: the rule against a model, the whole path, and what is refused."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host
from hypothesis import given
from hypothesis import strategies as st

from corelane import libos
from corelane.libos._native import ffi
from corelane.libos.numba.atomics import load_atomic, store_atomic
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]
Program = Callable[..., Callable[..., str]]

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
FULL = 512  # entries of a type's queue


class Model:
    """Twenty lines that say what the queues do."""

    def __init__(self, targets: list[int]) -> None:
        self.targets = targets
        self.queues: list[list[tuple[int, int]]] = [[] for _ in targets]

    def put(self, kind: int, came: int, number: int) -> bool:
        if len(self.queues[kind]) == FULL:
            return False
        self.queues[kind].append((came, number))
        return True

    def take(self, now: int) -> int:
        """The number of the next, -1 for none."""
        waiting = [k for k, queue in enumerate(self.queues) if queue]
        if not waiting:
            return -1

        def urgency(kind: int) -> tuple[Fraction, int, int]:
            waited = max(now - self.queues[kind][0][0], 0)
            return Fraction(waited, self.targets[kind]), -self.targets[kind], -kind

        return self.queues[max(waiting, key=urgency)].pop(0)[1]


@pytest.fixture(scope="module")
def queues(c_library: Callable[..., Any]) -> Any:
    library = ctypes.CDLL(str(c_library("tests/libos/net/c/typed_rule.c")))
    u64 = ctypes.c_uint64
    library.rule_new.argtypes = [ctypes.c_uint32, ctypes.POINTER(u64)]
    library.rule_new.restype = ctypes.c_void_p
    library.rule_put.argtypes = [ctypes.c_void_p, ctypes.c_uint32, u64, ctypes.c_uint32]
    library.rule_put.restype = ctypes.c_bool
    library.rule_take.argtypes = [ctypes.c_void_p, u64]
    library.rule_take.restype = ctypes.c_int64
    library.rule_delete.argtypes = [ctypes.c_void_p]
    return library


# Clocks step by 0 to some targets; now and then a stamp of another core lies ahead.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 15), st.integers(-50, 5)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("step"), st.integers(0, 5000), st.just(0)),
    ),
    max_size=400,
)


@given(targets=st.lists(st.integers(1, 2**32), min_size=1, max_size=16), steps=STEPS)
def test_the_next_is_the_model_s(queues: Any, targets: list[int], steps: list[tuple[str, int, int]]) -> None:
    model, now = Model(targets), 1_000_000
    made = queues.rule_new(len(targets), (ctypes.c_uint64 * len(targets))(*targets))
    try:
        for number, (what, value, ahead) in enumerate(steps):
            if what == "step":
                now += value
            elif what == "put":
                kind = value % len(targets)
                assert queues.rule_put(made, kind, now + ahead, number) == model.put(kind, now + ahead, number)
            else:
                assert queues.rule_take(made, now) == model.take(now)
        while (number := model.take(now)) >= 0:
            assert queues.rule_take(made, now) == number
        assert queues.rule_take(made, now) == -1
    finally:
        queues.rule_delete(made)


@given(urgent=st.integers(1, 20), ratio=st.integers(1, 100), step=st.integers(1, 50), backlog=st.integers(0, 20))
def test_no_type_starves(queues: Any, urgent: int, ratio: int, step: int, backlog: int) -> None:
    """Behind a backlog that never shrinks, of requests a hundred times as urgent, the patient one is served in time."""
    patient = urgent * ratio
    made = queues.rule_new(2, (ctypes.c_uint64 * 2)(urgent, patient))
    try:
        assert queues.rule_put(made, 1, 0, 1)
        for _ in range(backlog):
            assert queues.rule_put(made, 0, 0, 0)
        served = 0
        for turn in range(1, backlog * (ratio + 1) + 3):  # no head of the others waits for more than `backlog` steps
            assert queues.rule_put(made, 0, turn * step, 0)
            served += queues.rule_take(made, turn * step)
        assert served == 1
    finally:
        queues.rule_delete(made)


def test_queue_that_is_full_takes_no_more(queues: Any) -> None:
    made = queues.rule_new(2, (ctypes.c_uint64 * 2)(10, 100))
    assert [queues.rule_put(made, 0, i, i) for i in range(FULL + 1)] == [True] * FULL + [False]
    assert queues.rule_put(made, 1, 0, 999)
    queues.rule_delete(made)


@pytest.mark.parametrize("kthreads", [1, 3])
def test_every_entry_is_taken_once_while_siblings_take(c_program: Program, kthreads: int, seed: int) -> None:
    assert c_program("tests/libos/net/c/typed_stress.c", [])(kthreads, 200_000, seed) == "ok\n"


@pytest.mark.parametrize(("kthreads", "quantum_us"), [(1, 0), (1, 1), (2, 0), (2, 1), (4, 1)])
def test_requests_end_once_with_and_without_a_quantum(c_program: Program, kthreads: int, quantum_us: int) -> None:
    """Long requests probe, others block or are stolen; all are answered, counters balance, no buffer is lost."""
    rounds = 100 if os.environ.get("CORELANE_SANITIZE") else 500
    assert c_program("tests/libos/net/c/typed_serve.c")(kthreads, quantum_us, rounds) == "ok\n"


def first_byte(request):  # type: ignore[no-untyped-def]  # numba types it
    return request[0]


def is_long(request):  # type: ignore[no-untyped-def]  # numba types it
    return request[0] > 0


def holds_then_logs(request, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    """state: [0] begun, [1] let go, [2] how many were logged, then their second bytes."""
    if request[1] == 255:
        store_atomic(state, 0, 1)
        while load_atomic(state, 1) == 0:
            pass
        return 0
    state[3 + state[2]] = request[1]
    state[2] += 1
    return 0


def _order_of(serve: Serve, classify: Any, targets_us: tuple[int, ...], kinds: list[int]) -> tuple[list[int], Any]:
    """In which order requests of these kinds are handled that all came in one burst, and the runtime."""
    state = np.zeros(300, np.uint64)
    served = serve(libos.udp(9000, state=state, classify=classify, targets_us=targets_us)(holds_then_logs))
    served.send(_request(bytes([0, 255])))
    wait_until(lambda: state[0] == 1, 60, lambda: "the handler to hold the kthread")
    served.send(*[_request(bytes([kind, number])) for number, kind in enumerate(kinds)])
    state[1] = 1
    served.done_with(1 + len(kinds))
    return [int(n) for n in state[3 : 3 + len(kinds)]], served.runtime


def test_requests_of_one_burst_go_by_target(serve: Serve) -> None:
    kinds = [2, 0, 1, 1, 0, 2, 0, 1]
    order, runtime = _order_of(serve, first_byte, (50, 10, 1000), kinds)
    assert [kinds[n] for n in order] == [1, 1, 1, 0, 0, 0, 2, 2]
    assert order == [2, 3, 7, 1, 4, 6, 0, 5]  # within a type as they came
    assert runtime.stats().net["type_errors"] == 0


def test_a_type_that_is_none_is_the_last_and_counted(serve: Serve) -> None:
    order, runtime = _order_of(serve, first_byte, (10, 1000), [9, 0, 1, 200, 0])
    assert order == [1, 4, 0, 2, 3]
    assert runtime.stats().net["type_errors"] == 2


def test_a_classifier_may_say_true_or_false(serve: Serve) -> None:
    order, _ = _order_of(serve, is_long, (10, 1000), [5, 0, 7, 0])
    assert order == [1, 3, 0, 2]


def test_a_classifier_in_c(serve: Serve) -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)

    @kind
    def by_length(request: int, length: int, arg: int | None) -> int:
        return -1 if arg else int(length > 2)

    order, runtime = _order_of(serve, by_length, (10, 1000), [0, 0])
    assert order == [0, 1]
    assert runtime.stats().net["type_errors"] == 0


def test_handlers_that_do_not_sort_go_on_beside(serve: Serve) -> None:
    served = serve(
        libos.udp(9000, classify=first_byte, targets_us=(10, 1000))(first_byte_back), libos.udp(9001)(first_byte_back)
    )
    for n in range(20):
        assert served.ask(bytes([n % 2]), 9000 + n % 3 % 2) == bytes([n % 2])


def first_byte_back(request, reply):  # type: ignore[no-untyped-def]  # numba types it
    reply[0] = request[0]
    return 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classify": first_byte}, "targets_us is missing"),
        ({"targets_us": (1, 2)}, "classify is missing"),
        ({"classify": first_byte, "targets_us": ()}, "give 1 to 16 numbers"),
        ({"classify": first_byte, "targets_us": (1,) * 17}, "give 1 to 16 numbers"),
        ({"classify": first_byte, "targets_us": 5}, "give 1 to 16 numbers"),
        ({"classify": first_byte, "targets_us": (10, 0)}, "the target 0"),
        ({"classify": first_byte, "targets_us": (10, 1.5)}, "the target 1.5"),
        ({"classify": first_byte, "targets_us": (10, 20), "compiled": False}, "compile the handler"),
    ],
)
def test_wrong_types_are_one_clear_error(options: dict[str, Any], says: str) -> None:
    with pytest.raises(CorelaneError, match="sort requests by type") as error:
        libos.udp(9000, **options)
    assert says in str(error.value)


def test_a_classifier_that_cannot_be(serve: Serve) -> None:
    for wrong, says in ((lambda request: "short", "return the request's type"), ("short", "cannot be called")):
        handler = libos.udp(9000, classify=wrong, targets_us=(1, 2))(first_byte_back)
        with pytest.raises(CorelaneError, match=says):
            handler.prepare()
    burst = ffi.cast("cl_udp_burst_handler", 1)
    with pytest.raises(CorelaneError, match="requests of all types at once"):
        libos.c_handler(burst, 9000, classify=first_byte, targets_us=(1, 2))


def test_types_of_all_handlers_share_the_room(serve: Serve) -> None:
    nine = {"classify": first_byte, "targets_us": (1,) * 9}
    served = serve(libos.udp(9000, **nine)(first_byte_back))
    with pytest.raises(CorelaneError, match="9 types, and the runtime has 7 left"):
        served.runtime.bind(libos.udp(9001, **nine)(first_byte_back))
    served.runtime.bind(libos.udp(9001, classify=first_byte, targets_us=(1,) * 7)(first_byte_back))
    assert served.ask(b"a") == b"a"
    assert served.ask(b"b", 9001) == b"b"


def _request(payload: bytes, port: int = 9000) -> bytes:
    return CLIENT.datagram(SERVER, payload, 5555, port)
