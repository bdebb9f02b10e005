"""The check of client histories: known right ones, known wrong ones, a brute-force model, and its limits."""

from __future__ import annotations

import itertools
import random

import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.apps.raft.sim.history import History, Operation, check
from corelane.runtime.errors import CorelaneError


def op(client, kind, invoked, returned, value=None, result=None, **more):
    return Operation(client, kind, more.pop("key", "x"), invoked, value, returned=returned, result=result, **more)


RIGHT = {
    "empty": [],
    "a read of nothing": [op(1, "get", 0, 1)],
    "one after the other": [op(1, "put", 0, 1, "a"), op(2, "get", 2, 3, result="a")],
    "a read beside the write that it misses": [op(1, "put", 0, 5, "a"), op(2, "get", 1, 2)],
    "a read beside the write that it sees": [op(1, "put", 0, 5, "a"), op(2, "get", 1, 2, result="a")],
    "an unknown write that took effect late": [
        op(1, "put", 0, None, "a"),
        op(2, "put", 1, 2, "b"),
        op(2, "get", 3, 4, result="b"),
        op(2, "get", 5, 6, result="a"),
    ],
    "an unknown write that never did": [op(1, "put", 0, None, "a"), op(2, "get", 1, 2), op(2, "get", 3, 4)],
    "an unknown read": [op(1, "put", 0, 1, "a"), op(2, "get", 2, None)],
    "compare and set": [
        op(1, "put", 0, 1, "a"),
        op(1, "cas", 2, 5, "b", expected="a"),
        op(2, "cas", 3, 4, "c", expected="a", refused=True),
        op(3, "get", 6, 7, result="b"),
    ],
    "appends in one of two orders": [
        op(1, "append", 0, 9, "left"),
        op(2, "append", 1, 8, "right"),
        op(3, "get", 10, 11, result="rightleft"),
    ],
    "an append that says what came of it": [
        op(1, "put", 0, 1, "a"),
        op(2, "append", 2, 3, "b", result="ab"),
    ],
    "counts": [
        op(1, "add", 0, 5, 1, result=2),
        op(2, "add", 1, 4, 1, result=1),
        op(1, "get", 6, 7, result=2),
    ],
    "keys apart": [
        op(1, "put", 0, 1, "a", key="x"),
        op(1, "put", 2, 3, "b", key="y"),
        op(2, "get", 4, 5, result="a", key="x"),
        op(2, "get", 6, 7, key="z"),
    ],
    "deletes": [
        op(1, "delete", 0, 1, refused=True),
        op(1, "put", 2, 3, "a"),
        op(1, "delete", 4, 5),
        op(1, "append", 6, 7, "a", needs_key=True, refused=True),
        op(1, "get", 8, 9),
    ],
}

WRONG = {
    "a read of what nobody wrote": [op(1, "get", 0, 1, result="a")],
    "a stale read": [op(1, "put", 0, 1, "a"), op(2, "put", 2, 3, "b"), op(3, "get", 4, 5, result="a")],
    "a lost write": [op(1, "put", 0, 1, "a"), op(2, "get", 2, 3)],
    "a read from the future": [op(2, "get", 0, 1, result="a"), op(1, "put", 2, 3, "a")],
    "an unknown write that took effect twice": [
        op(1, "put", 0, None, "a"),
        op(2, "get", 1, 2, result="a"),
        op(2, "put", 3, 4, "b"),
        op(2, "get", 5, 6, result="a"),
    ],
    "two readers who disagree on the order": [
        op(1, "put", 0, 9, "a"),
        op(2, "put", 0, 9, "b"),
        op(3, "get", 1, 2, result="a"),
        op(3, "get", 3, 4, result="b"),
        op(4, "get", 5, 6, result="a"),
    ],
    "two compare and set of the same value": [
        op(1, "put", 0, 1, "a"),
        op(1, "cas", 2, 5, "b", expected="a"),
        op(2, "cas", 3, 4, "c", expected="a"),
    ],
    "an append applied twice": [op(1, "append", 0, 1, "a"), op(2, "get", 2, 3, result="aa")],
    "an increment applied twice": [op(1, "add", 0, 1, 1, result=1), op(2, "get", 2, 3, result=2)],
    "an increment lost": [op(1, "add", 0, 1, 1), op(2, "add", 2, 3, 1), op(2, "get", 4, 5, result=1)],
    "a delete of nothing": [op(1, "delete", 0, 1)],
    "a refusal without reason": [op(1, "put", 0, 1, "a"), op(1, "cas", 2, 3, "b", expected="a", refused=True)],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_histories(name):
    verdict = check(RIGHT[name])
    assert verdict.right, verdict


@pytest.mark.parametrize("name", WRONG)
def test_wrong_histories(name):
    verdict = check(WRONG[name])
    assert verdict.word == "wrong"
    assert str(verdict.stuck) in str(verdict)


def apply(state, o):
    """The brute-force model of one register: (fits, state afterwards)."""
    known = o.returned is not None
    if o.kind == "get":
        return (not known or o.result == state), state
    if o.kind == "put":
        return True, o.value
    if o.kind == "cas":
        if state == o.expected:
            return not o.refused, o.value
        return o.refused, state
    if o.kind == "delete":
        return (state is None) == o.refused, None
    if state is None and o.needs_key:
        return o.refused, state
    if o.refused:
        return False, state
    after = (state or ("" if o.kind == "append" else 0)) + o.value
    return o.result is None or not known or o.result == after, after


def linearizable(ops):
    """Every order of every choice of the unknown ones."""
    known = [o for o in ops if o.returned is not None]
    unknown = [o for o in ops if o.returned is None]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                if any(
                    b.returned is not None and b.returned < a.invoked
                    for i, a in enumerate(order)
                    for b in order[i + 1 :]
                ):
                    continue
                state = None
                for o in order:
                    fits, state = apply(state, o)
                    if not fits:
                        break
                else:
                    return True
    return False


@st.composite
def histories(draw, text=True):
    """Up to six operations on one register, with answers from a small set: about half of them fit."""
    ops = []
    values = st.sampled_from(["a", "b", "ab"]) if text else st.integers(0, 2)
    kinds = ["get", "put", "cas", "delete", "append" if text else "add"]
    for client in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(kinds))
        invoked = draw(st.integers(0, 8))
        returned = draw(st.one_of(st.none(), st.integers(invoked, 12)))
        o = Operation(client, kind, "x", invoked, returned=returned)
        if kind != "get":
            o.value = None if kind == "delete" else draw(values)
        if kind == "cas":
            o.expected = draw(st.one_of(st.none(), values))
        if kind in ("get", "append", "add") and returned is not None:
            o.result = draw(st.one_of(st.none(), values))
        if kind in ("append", "add"):
            o.needs_key = draw(st.booleans())
        if kind in ("cas", "delete") or o.needs_key:
            o.refused = returned is not None and draw(st.booleans())
        ops.append(o)
    return ops


@pytest.mark.soak(short=True, takes_s=20)
@settings(max_examples=soak.examples(150, 4000))
@given(st.one_of(histories(), histories(text=False)))
def test_against_every_order(ops):
    assert check(ops).word == ("right" if linearizable(ops) else "wrong")


def run_register(rng, clients, count, late=0.03):
    """A history of a register that is linearizable by construction: each operation takes effect at a random instant."""
    history, state, clock = History(), {}, 0
    free = list(range(clients))
    waiting = []
    while count or waiting:
        clock += 1
        if count and free and rng.random() < 0.6:
            client, count = free.pop(), count - 1
            kind = rng.choice(["get", "put", "cas", "append"])
            key = rng.randrange(2)
            o = history.invoke(
                client, kind, key, f"v{count}.", expected=state.get(key) if kind == "cas" else None, at=clock
            )
            o.value = None if kind == "get" else o.value
            waiting.append([o, False, None])
        elif waiting:
            entry = rng.choice(waiting)
            o, done, _ = entry
            if not done:
                fits, after = apply(state.get(o.key), Operation(0, o.kind, o.key, 0, o.value, o.expected))
                entry[1:] = [True, (state.get(o.key), not fits)]
                if fits and o.kind != "get":
                    state[o.key] = after
            else:
                waiting.remove(entry)
                if rng.random() < late:
                    free.append(o.client)  # its answer is lost
                    continue
                found, refused = entry[2]
                history.complete(o, found if o.kind == "get" else None, refused=refused and o.kind == "cas", at=clock)
                free.append(o.client)
    return history


def test_long_histories_are_found_right(seed):
    rng = random.Random(seed)
    for _ in range(30):
        history = run_register(rng, clients=5, count=300)
        verdict = history.check()
        assert verdict.right, verdict


def test_long_histories_with_one_stale_read_are_found_wrong(seed):
    rng = random.Random(seed)
    found = 0
    for _ in range(20):
        history = run_register(rng, clients=4, count=150, late=0.02)
        reads = [o for o in history.operations if o.kind == "get" and o.result and o.invoked > 50]
        if not reads:
            continue
        rng.choice(reads).result = "v never written."
        assert history.check().word == "wrong"
        found += 1
    assert found > 10


UNKNOWN = {
    "counts": ([op(i, "add", i, None, 1 + i % 3) for i in range(40)], 77, 80),
    "texts": (
        [op(i, "put", i, None, f"v{i}") for i in range(20)]
        + [op(i, "delete", i, None) for i in range(20, 30)]
        + [op(i, "cas", i, None, f"v{i}", expected=f"v{i - 30}" if i % 2 else None) for i in range(30, 50)],
        "v49",
        "never",
    ),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_many_operations_of_unknown_outcome_are_decided(kind):
    """Which of them were used up matters, not each of their subsets: these had been undecided."""
    unknown, possible, impossible = UNKNOWN[kind]
    last = op(99, "get", 100, 101, result=possible)
    assert check([*unknown, last], configurations=50_000).right
    last.result = impossible
    assert check([*unknown, last], configurations=50_000).word == "wrong"


def test_beyond_its_limits_it_is_undecided_which_is_not_right():
    ops = [op(i, "put", 0, 100, f"v{i}") for i in range(20)] + [op(99, "get", 101, 102, result="never")]
    verdict = check(ops, configurations=1000)
    assert verdict.word == "undecided"
    assert not verdict.right
    assert "undecided" in str(verdict)
    assert check(ops, memo_bytes=65536).word == "undecided"


def test_recording():
    history = History()
    put = history.invoke(1, "put", "colour", "red")
    history.complete(put)
    got = history.invoke(2, "get", "colour")
    history.complete(got, b"red")
    never_sent = history.invoke(3, "put", "colour", "blue")
    history.drop(never_sent)
    assert len(history.operations) == 2
    assert history.check().right
    history.operations[1].result = "green"
    assert not history.check().right
    with pytest.raises(CorelaneError, match="append takes text"):
        check([op(1, "append", 0, 1, 7)])
