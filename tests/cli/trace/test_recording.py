"""What `trace` makes of the entries of a log. With an iokernel: ../test_managed_cores.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corelane.cli.trace import moves as trace
from corelane.cli.trace.recording import FAULTS_KEPT, Fault, Recording, Span, events, follow, summary
from corelane.iokernel._native import lib
from corelane.iokernel.control.moves import WORD, Move

KV, JOB, CPU = 3, 7, 5  # slot + 1
BASE = 0x9_FFFF_FF00  # soon after it the low word begins anew
HZ = 1_000_000_000  # so that ticks are ns


def low(at: int) -> int:
    return (BASE + at) % WORD


def wanted(at: int, old: int, new: int, step: int = lib.CL_IO_STEP_REQUEST, **stamps: int) -> Move:
    return Move(BASE + at, old, new, lib.CL_IO_LOG_WANTED, step, core=CPU, **{k: low(v) for k, v in stamps.items()})


def note(at: int, what: int, owner: int, step: int = 0, about: int = 0, **stamps: int) -> Move:
    return Move(BASE + at, owner, owner, what, step, core=CPU, about=about, **{k: low(v) for k, v in stamps.items()})


def asked(at: int, old: int, new: int) -> list[Move]:
    """A move by asking, that takes 2000 from its decision 100 after the round's beginning."""
    stamps = {"decided": at + 100, "stored": at + 150, "lost": at + 900, "left": at + 1000, "back": at + 2100}
    return [wanted(at, old, new), note(at + 2200, lib.CL_IO_LOG_DONE, new, lib.CL_IO_STEP_REQUEST, **stamps)]


def recording(*moves: Move, end: int = 100_000) -> Recording:
    made = Recording(BASE, BASE + end, HZ)
    made.add(moves, 0)
    for slot, name in ((KV, "kv.0"), (JOB, "job.0")):
        made.learn(slot, BASE - 1000, name)
    return made


def test_owners_have_the_core_between_the_moves() -> None:
    of = recording(*asked(10_000, JOB, KV), *asked(50_000, KV, JOB))
    handovers, spans, faults = follow(of.moves, of)
    assert [(m.old, m.new, m.step, m.ticks, m.begin - BASE, m.end - BASE) for m in handovers] == [
        (JOB, KV, "ask", 2000, 10_100, 12_100),
        (KV, JOB, "ask", 2000, 50_100, 52_100),
    ]
    assert handovers[0].parts is not None
    assert list(handovers[0].parts.values()) == [100, 50, 800, 100, 1100, 100]
    # Who had it when the recording began is the first move's old owner.
    assert spans == [
        Span(CPU, JOB, BASE, BASE + 10_100),
        Span(CPU, KV, BASE + 12_100, BASE + 50_100),
        Span(CPU, JOB, BASE + 52_100, BASE + 100_000),
    ]
    assert not faults
    document = summary(of)
    assert document["cores"] == [{"cpu": CPU, "moves": 2, "owners": {"job.0": 0.58, "kv.0": 0.38}}]
    assert document["pairs"] == [
        {"from": "job.0", "to": "kv.0", "moves": 1},
        {"from": "kv.0", "to": "job.0", "moves": 1},
    ]
    assert document["steps"]["ask"] == {
        "moves": 2, "not_stamped": 0, "p50_us": 2.0, "p90_us": 2.0, "p99_us": 2.0, "max_us": 2.0
    }  # fmt: skip
    assert document["ask_parts"]["yield until the new runs"]["p99_us"] == 1.1


def test_a_wake_up_is_timed_from_its_round_and_moves_nothing() -> None:
    """Its hand-over's stamps but the last one are of an earlier move."""
    of = recording(
        note(5_000, lib.CL_IO_LOG_WOKEN, KV),
        note(
            8_900, lib.CL_IO_LOG_DONE, KV, lib.CL_IO_STEP_WAKE, decided=-70_000, lost=-69_000, left=-68_500, back=8_000
        ),
    )
    (woken,), spans, _ = follow(of.moves, of)
    assert (woken.old, woken.new, woken.step, woken.ticks, woken.begin - BASE) == (KV, KV, "wake", 3000, 5_000)
    assert spans == [Span(CPU, KV, BASE, BASE + 100_000)]
    assert summary(of)["pairs"] == []


def test_what_was_overtaken_is_no_move_and_the_next_one_is_from_who_had_the_core() -> None:
    """A move that overtakes another begins with the new owner of that one, which never had the core."""
    other = 11
    of = recording(asked(1_000, JOB, KV)[0], *asked(9_000, KV, other))
    (move,), spans, _ = follow(of.moves, of)
    assert (move.old, move.new, move.ticks) == (JOB, other, 2000)
    assert spans == [Span(CPU, JOB, BASE, BASE + 9_100), Span(CPU, other, BASE + 11_100, BASE + 100_000)]
    back = recording(asked(1_000, JOB, KV)[0], *asked(9_000, KV, JOB))
    (move,), spans, _ = follow(back.moves, back)
    assert (move.old, move.new) == (JOB, JOB)
    assert spans == [Span(CPU, JOB, BASE, BASE + 100_000)]
    assert summary(back)["pairs"] == []


def test_nothing_is_followed_across_a_gap() -> None:
    """What was lost may have ended a move and begun another: neither is made up, and the gap is nobody's time."""
    first, second = asked(10_000, JOB, KV), asked(70_000, KV, JOB)
    of = recording(*first, asked(20_000, KV, JOB)[0])
    of.add([second[1]], 7)  # its WANTED is among the lost ones
    of.add([*asked(80_000, JOB, KV)], 0)
    handovers, spans, _ = follow(of.moves, of)
    assert [(m.old, m.new, m.begin - BASE) for m in handovers] == [(JOB, KV, 10_100), (JOB, KV, 80_100)]
    assert spans == [
        Span(CPU, JOB, BASE, BASE + 10_100),
        Span(CPU, KV, BASE + 12_100, BASE + 20_000),
        Span(CPU, JOB, BASE + 72_200, BASE + 80_100),
        Span(CPU, KV, BASE + 82_100, BASE + 100_000),
    ]
    assert (of.lost, of.gaps) == (7, [BASE + 72_200])
    assert "7 entries were written over" in trace.render(document(of))


def test_an_end_that_belongs_to_another_move_is_not_paired() -> None:
    of = recording(asked(10_000, JOB, KV)[0], asked(30_000, JOB, 11)[1])
    handovers, spans, _ = follow(of.moves, of)
    assert handovers == []
    assert spans[-1] == Span(CPU, 11, BASE + 32_200, BASE + 100_000)


def test_a_slot_is_named_as_of_the_time() -> None:
    of = recording(*asked(10_000, JOB, KV), note(20_000, lib.CL_IO_LOG_EVICTED, KV, about=JOB), *asked(50_000, KV, JOB))
    of.learn(JOB, BASE + 40_000, "other.0")
    of.learn(JOB, BASE + 41_000, "other.0")  # asked for again
    owners = summary(of)["cores"][0]["owners"]
    assert owners == {"other.0": 0.479, "kv.0": 0.38, "job.0": 0.101}
    (fault,) = summary(of)["faults"]
    assert fault["text"].startswith("job.0 did not cede")
    assert of.name(11, BASE) == "slot 10"


def test_what_never_ended_is_no_move_and_one_without_stamps_has_no_time() -> None:
    overtaken, done = asked(1_000, JOB, KV)[0], asked(9_000, JOB, KV)
    of = recording(overtaken, done[0], done[1]._replace(back=0))
    (move,), spans, _ = follow(of.moves, of)
    assert (move.ticks, move.parts, move.end - BASE) == (None, None, 11_200)
    assert spans[-1] == Span(CPU, KV, BASE + 11_200, BASE + 100_000)
    times = summary(of)["steps"]["ask"]
    assert (times["moves"], times["not_stamped"], times["p50_us"]) == (1, 1, None)


def test_faults_are_sentences_about_who_did_it() -> None:
    of = recording(
        wanted(1_000, JOB, KV),
        note(41_000, lib.CL_IO_LOG_INTERRUPTED, KV),
        note(91_000, lib.CL_IO_LOG_EVICTED, KV, about=JOB),
        note(92_000, lib.CL_IO_LOG_DONE, KV, lib.CL_IO_STEP_EVICT, decided=1_100, back=91_500),
        note(93_000, lib.CL_IO_LOG_BLOCKED, KV),
        Move(BASE + 94_000, KV, 0, lib.CL_IO_LOG_DIED, 0, core=CPU),
        Move(BASE + 95_000, 9, 0, lib.CL_IO_LOG_STALLED, 0, core=CPU),
        Move(BASE + 96_000, KV, 0, lib.CL_IO_LOG_LEFT, 0, core=CPU),  # how applications end
    )
    (move,), spans, faults = follow(of.moves, of)
    assert (move.step, move.ticks) == ("evict", 90_400)
    assert spans == [Span(CPU, JOB, BASE, BASE + 1_100), Span(CPU, KV, BASE + 91_500, BASE + 94_000)]
    assert [(f.at - BASE, f.kind) for f in faults] == [
        (91_000, "evicted"), (93_000, "blocked"), (94_000, "died"), (95_000, "stalled")
    ]  # fmt: skip
    assert faults[0].text == "job.0 did not cede when asked and interrupted, and was demoted for kv.0"
    assert faults[1].text.startswith("kv.0 sleeps in the kernel")
    assert faults[2] == Fault(CPU, BASE + 94_000, "died", "the thread of kv.0 does not exist any more")
    assert faults[3].text.startswith("slot 8 did not begin in time")


def test_who_is_demoted_after_the_new_owner_began_is_named() -> None:
    """The steps go on while the old owner has not ceded."""
    begun, done = asked(1_000, JOB, KV)
    of = recording(begun, done._replace(leaving=1), note(91_000, lib.CL_IO_LOG_EVICTED, KV, about=JOB))
    (fault,) = summary(of)["faults"]
    assert fault["text"] == "job.0 did not cede when asked and interrupted, and was demoted for kv.0"
    overrun = recording(note(5_000, lib.CL_IO_LOG_OVERRUN, KV, about=JOB))
    assert summary(overrun)["faults"][0]["text"].startswith("job.0 used the core of kv.0 without owning one")


def test_events_are_what_perfetto_reads() -> None:
    of = recording(*asked(10_000, JOB, KV), note(20_000, lib.CL_IO_LOG_OVERRUN, KV))
    made = json.loads(json.dumps(list(events(of))))
    by_phase: dict[str, list[dict[str, Any]]] = {}
    for event in made:
        by_phase.setdefault(event["ph"], []).append(event)
    assert {e["args"]["name"] for e in by_phase["M"]} == {"cores: who has them", "cores: moves", f"CPU {CPU}"}
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in by_phase["X"]] == [
        ("job.0", 1, 10_000 + CPU, 0.0, 10.1),
        ("kv.0", 1, 10_000 + CPU, 12.1, 87.9),
        ("ask: job.0 to kv.0", 2, 20_000 + CPU, 10.1, 2.0),
    ]
    assert by_phase["X"][2]["args"]["old owner until it yields (us)"] == 0.1
    assert [(e["name"], e["ts"], e["s"]) for e in by_phase["i"]] == [("overrun", 20.0, "t")]


def document(of: Recording) -> dict[str, Any]:
    return {"socket": "/run/x.sock", "policy": "delay", "ended": of.ended} | summary(of)


def test_the_table_says_what_was_seen() -> None:
    evicted = [note(n, lib.CL_IO_LOG_EVICTED, KV, about=JOB) for n in range(60_000, 60_000 + 30)]
    of = recording(*asked(10_000, JOB, KV), *evicted, end=1_000_000)
    of.lost = 1234
    text = trace.render(document(of) | {"out": "t.json"})
    for part in (
        "traced 0.001 s of the iokernel on /run/x.sock, policy delay: 1 move or wake-up, 32 entries of its log",
        "1,234 entries were written over",
        "ask       1    2.00  2.00  2.00  2.00",
        "old owner until it yields                0.10  0.10  0.10  0.10",
        "job.0  kv.0    1,000",
        "5     kv.0    98.8",
        "what went wrong, the last 20 of 30:",
        "  0.000060 s  CPU 5: ",
        "wrote t.json: open it in ui.perfetto.dev",
    ):
        assert part in text
    assert text.count("job.0 did not cede") == trace.FAULTS_SHOWN
    assert summary(of)["faults_by_kind"] == {"evicted": 30}


def test_parts_of_asks_are_left_out_where_none_has_stamps() -> None:
    begun, done = asked(10_000, JOB, KV)
    text = trace.render(document(recording(begun, done._replace(back=0))))
    assert "PART OF AN ASK" not in text
    assert "ask" in text


def test_faults_are_counted_and_the_last_ones_kept() -> None:
    n = FAULTS_KEPT + 5
    of = recording(*(note(k, lib.CL_IO_LOG_BLOCKED, KV) for k in range(n)))
    said = summary(of)
    assert (len(said["faults"]), said["faults_by_kind"]) == (FAULTS_KEPT, {"blocked": n})
    assert f"the last {trace.FAULTS_SHOWN} of {n:,}" in trace.render(document(of))


@pytest.mark.parametrize("moves", [(), (note(5_000, lib.CL_IO_LOG_BLOCKED, KV),)])
def test_where_nothing_moved_it_says_so(moves: tuple[Move, ...]) -> None:
    text = trace.render(document(recording(*moves)))
    assert "no core moved, and no parked kthread was woken" in text
    assert ("kv.0 sleeps in the kernel" in text) == bool(moves)
