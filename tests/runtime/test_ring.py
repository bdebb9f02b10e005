"""The descriptor ring: against a model, with peers that lie, and under two threads."""

from __future__ import annotations

import ctypes
from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.runtime._native import ffi

PHASE = 1 << 63
shared_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
sizes = st.sampled_from([2, 4, 8, 64])
long = st.just(128)  # of these a producer fetches lines ahead
starts = st.sampled_from([0, 1, 2**31 - 5, 2**32 - 9, 2**32 - 1])
words = st.integers(0, PHASE - 1)
ops = st.lists(
    st.one_of(
        st.tuples(st.just("push"), words),
        st.tuples(st.just("push many"), st.integers(0, 100)),
        st.tuples(st.just("pop"), st.integers(0, 70)),
        st.tuples(st.just("peek"), st.integers(0, 70)),
        st.tuples(st.just("look"), st.integers(0, 140)),
        st.tuples(st.just("publish"), st.just(0)),
    ),
    max_size=150,
)

SIGNATURES = {
    "tx_init": "int(struct cl_ring_tx *, struct cl_desc *, uint32_t *, uint32_t)",
    "rx_init": "int(struct cl_ring_rx *, struct cl_desc *, uint32_t *, uint32_t)",
    "space": "uint32_t(struct cl_ring_tx *, uint32_t)",
    "push": "bool(struct cl_ring_tx *, uint64_t, uint64_t)",
    "ready": "bool(struct cl_ring_rx *)",
    "pop": "unsigned(struct cl_ring_rx *, struct cl_desc *, unsigned)",
    "peek": "unsigned(const struct cl_ring_rx *, struct cl_desc *, unsigned)",
    "look": "bool(const struct cl_ring_rx *, unsigned, uint64_t *)",
    "publish": "void(struct cl_ring_rx *)",
    "phase": "uint64_t(uint32_t, uint32_t)",
}


@pytest.fixture(scope="module")
def api(c_library):
    """The inline functions of ring.h, callable."""
    library = ctypes.CDLL(str(c_library("tests/runtime/c/ring_api.c")))
    functions = {}
    for name, signature in SIGNATURES.items():
        address = ctypes.cast(getattr(library, f"test_{name}"), ctypes.c_void_p).value
        functions[name] = ffi.cast(signature.replace("(", "(*)(", 1), address)
    return SimpleNamespace(**functions, library=library)


class Ring:
    """Both halves of a ring through which `start` descriptors have gone already."""

    def __init__(self, api, size: int, start: int = 0) -> None:
        self.slots = ffi.new("struct cl_desc[]", size)
        self.head = ffi.new("uint32_t *", start)
        self.tx = ffi.new("struct cl_ring_tx *")
        self.rx = ffi.new("struct cl_ring_rx *")
        self.out = ffi.new("struct cl_desc[]", 128)
        assert api.tx_init(self.tx, self.slots, self.head, size) == 0
        assert api.rx_init(self.rx, self.slots, self.head, size) == 0
        self.tx.tail = self.tx.head_cache = self.rx.head = self.rx.published = start
        for position in range(start - size, start):
            self.slots[position % size].word = api.phase(size, position % 2**32)


@shared_fixture
@given(size=sizes | long, start=starts, ops=ops)
def test_matches_a_queue(api, size, start, ops):
    ring = Ring(api, size, start)
    waiting: deque[tuple[int, int]] = deque()
    unpublished = 0
    for n, (op, value) in enumerate(ops):
        if op.startswith("push"):
            for word in range(value) if op == "push many" else [value]:
                fits = len(waiting) + unpublished < size
                assert api.push(ring.tx, word, n) == fits
                if fits:
                    waiting.append((word, n))
        elif op == "peek":
            got = api.peek(ring.rx, ring.out, value)
            assert [(d.word, d.payload) for d in ring.out[0:got]] == list(waiting)[:value]
        elif op == "look":
            word = ffi.new("uint64_t *")
            assert api.look(ring.rx, value, word) == (value < len(waiting))
            assert value >= len(waiting) or word[0] == waiting[value][0]
        elif op == "pop":
            got = api.pop(ring.rx, ring.out, value)
            want = [waiting.popleft() for _ in range(min(value, len(waiting)))]
            assert [(d.word, d.payload) for d in ring.out[0:got]] == want
            unpublished += got
        else:
            api.publish(ring.rx)
            unpublished = 0
        assert api.ready(ring.rx) == bool(waiting)
        assert api.space(ring.tx, size) == size - len(waiting) - unpublished
    assert ring.tx.lies == 0


def test_phase_bit_belongs_to_the_ring(api):
    ring = Ring(api, 4)
    api.push(ring.tx, 2**64 - 1, 7)
    assert api.pop(ring.rx, ring.out, 1) == 1
    assert ring.out[0].word == PHASE - 1


@shared_fixture
@given(size=sizes | long, start=starts, heads=st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_a_consumer_that_lies_gains_nothing(api, size, start, heads):
    """Whatever `head` says, the producer believes only what could be: between the last true head and its own tail."""
    ring = Ring(api, size, start)
    tx = ring.tx
    for head in heads:
        while api.push(tx, 1, 1):
            pass
        believed, lies = tx.head_cache, tx.lies
        ring.head[0] = head
        space = api.space(tx, size)
        possible = (tx.tail - head) % 2**32 <= (tx.tail - believed) % 2**32
        assert tx.lies == lies + (not possible)
        assert space == (size - (tx.tail - head) % 2**32 if possible else 0)
        assert 0 <= space <= size


@shared_fixture
@given(size=sizes, start=starts, noise=st.binary(min_size=64 * 16, max_size=64 * 16), burst=st.integers(0, 64))
def test_a_producer_that_scribbles_gains_nothing(api, size, start, noise, burst):
    """Over random slots a pop ends within its burst, in order, and tells only what the slots say."""
    ring = Ring(api, size, start)
    ffi.memmove(ring.slots, noise[: size * 16], size * 16)
    got = api.pop(ring.rx, ring.out, burst)
    assert got <= min(burst, 64)
    assert ring.rx.head == (start + got) % 2**32
    for i in range(got):
        slot = ring.slots[(start + i) % size]
        assert slot.word & PHASE == api.phase(size, (start + i) % 2**32)
        assert (ring.out[i].word, ring.out[i].payload) == (slot.word & ~PHASE, slot.payload)
    assert got <= size, "a lap that was not written again has the old phase"


@pytest.mark.parametrize("size", [0, 1, 3, 6, 2**20 + 1, 2**21, 2**32 - 1])
def test_impossible_sizes_are_refused(api, size):
    tx, rx = ffi.new("struct cl_ring_tx *"), ffi.new("struct cl_ring_rx *")
    assert api.tx_init(tx, ffi.NULL, ffi.NULL, size) == -22
    assert api.rx_init(rx, ffi.NULL, ffi.NULL, size) == -22


@pytest.mark.parametrize(("size", "burst"), [(2, 1), (4, 64), (64, 7), (1024, 32)])
@pytest.mark.parametrize("start", [0, 2**32 - 1000])
def test_two_threads_lose_nothing(c_program, size, burst, start):
    run = c_program("tests/runtime/c/ring_stress.c", sources=[])
    # As many as there are slots take a switch of threads: beside another program's a time slice of that one.
    messages = min(1_000 * size, 300_000)
    assert f"{messages} descriptors through {size} slots" in run(size, messages, burst, start)
