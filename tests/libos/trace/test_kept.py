"""Traces on disk (kept.py): what is written is read again; budgets; files that are none; the recorder (recorder.py)."""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maderequests import HZ, NAMES, Made

from corelane.libos.trace import kept, recorder
from corelane.libos.trace.kept import Head, Ran, keep, load, names
from corelane.libos.trace.pieces import arrays, number, raw
from corelane.libos.trace.recorder import PAUSE_S, Recorder
from corelane.libos.trace.slo import Broken
from corelane.runtime.errors import CorelaneError, SystemLimit
from corelane.runtime.perf import Mapped, Sample
from corelane.runtime.trace import Records
from corelane.runtime.tracing import Trace

BROKEN = Broken("1ms", "UDP 9000", 1234.5, 50, 1, 1000007, 10**9)
HEAD = Head(42, "kv", HZ, "sampled", 1024, tuple(NAMES), BROKEN, 1_700_000_000.25, 3, 7)
MIB = 1 << 20


def records(n: int = 50, seed: int = 1) -> Records:
    made = Made(n, seed)
    made.us["blocked"][::5] = 30
    return made.records()


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    folder, what = tmp_path / "state" / "traces", records()
    path = keep(folder, HEAD, what, MIB, 4)
    assert path.name == "20231114T221320.250Z-kv-42.trace"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    head, again = load(path)
    assert head == HEAD == kept.head_of(path)
    assert all((arrays(again)[name] == of).all() for name, of in arrays(what).items())
    assert (again.lost, again.garbage) == (7, 0)
    assert names(folder) == [path.name]


RAN = Ran(199, (Sample(0, 5, (1, 2)), Sample(1, 2**63, (3,))), (Mapped(4096, 8192, 0, "/lib/x.so"),))


def test_where_kthreads_were_is_kept_with_it(tmp_path: Path) -> None:
    path = keep(tmp_path, HEAD, records(8), MIB, 4, RAN)
    assert kept.ran(path) == RAN
    assert number(load(path)[1]) == 10
    assert kept.ran(keep(tmp_path, HEAD, records(8), MIB, 4)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"hz": 0},
        {"hz": 1.5},
        {"samples": [[0, 5]]},
        {"samples": [[-1, 5, 1]]},
        {"samples": 7},
        {"mapped": [[1, 2, 3, 4]]},
    ],
)
def test_what_is_said_of_kthreads_is_checked(change: dict[str, Any], tmp_path: Path) -> None:
    path = keep(tmp_path, HEAD, records(8), MIB, 4, RAN)
    head, ran, rest = path.read_bytes().split(b"\n", 2)
    path.write_bytes(b"\n".join([head, json.dumps(json.loads(ran) | change).encode(), rest]))
    with pytest.raises(CorelaneError, match="it is none, or of another version"):
        load(path)


def test_two_in_one_millisecond_have_names_of_their_own(tmp_path: Path) -> None:
    first, second = (keep(tmp_path, HEAD, records(n), MIB, 4) for n in (5, 6))
    assert first != second
    assert names(tmp_path) == [first.name, second.name]
    assert [number(load(path)[1]) for path in (first, second)] == [5 + 1, 6 + 2]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    other = tmp_path / "notes.trace"
    other.write_bytes(bytes(MIB))
    for second in range(6):
        keep(tmp_path, replace(HEAD, at=HEAD.at + second), records(), MIB, 3)
    assert [name[13:15] for name in names(tmp_path)] == ["23", "24", "25"]
    size = len(raw(records()))
    for second in range(6, 9):
        keep(tmp_path, replace(HEAD, at=HEAD.at + second), records(), 5 * size, 10)
        assert sum((tmp_path / name).stat().st_size for name in names(tmp_path)) <= 5 * size
    assert names(tmp_path)[-1][13:15] == "28"
    assert other.stat().st_size == MIB, "what is no trace of ours is left alone"


def test_the_newest_stays_the_last_when_the_clock_is_set_back(tmp_path: Path) -> None:
    """By an hour, and there is room for two."""
    before, after, later = (
        keep(tmp_path, replace(HEAD, at=HEAD.at + second), records(), MIB, 2) for second in (0, -3600, -3599)
    )
    assert names(tmp_path) == [after.name, later.name]
    assert before.name < after.name < later.name
    assert load(later)[0].at == HEAD.at - 3599, "what the clock said is in it"


def test_a_name_that_is_no_time_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "20269999T000000.000Z-kv-1.trace").write_bytes(b"x")
    assert keep(tmp_path, HEAD, records(), MIB, 4).name == "20231114T221320.250Z-kv-42.trace"


def test_the_year_9999_ends_nobodys_traces(tmp_path: Path) -> None:
    for last in ("99991231T235959.999", "99981231T235959.999"):
        (tmp_path / f"{last}Z-kv-42.trace").write_bytes(b"x")
    kept_ = [keep(tmp_path, HEAD, records(n), MIB, 9).name for n in (5, 6)]
    assert kept_ == ["99990101T000000.000Z-kv-42.trace", "99990101T000000.001Z-kv-42.trace"]
    assert [number(load(tmp_path / name)[1]) for name in kept_] == [5 + 1, 6 + 2]


def test_what_was_left_half_written_goes_too(tmp_path: Path) -> None:
    half = tmp_path / "20200101T000000.000Z-kv-1.trace.new"
    half.write_bytes(b"x")
    assert names(tmp_path) == []
    keep(tmp_path, HEAD, records(), MIB, 1)
    assert not half.exists()
    assert len(names(tmp_path)) == 1


def test_a_file_has_a_quarter_of_the_budget_and_what_is_near(tmp_path: Path) -> None:
    what = records(4000)
    late = int(what.messages["begin"][3000])
    path = keep(tmp_path, replace(HEAD, broken=replace(BROKEN, begin=late)), what, 4 * 64 * 1000, 4)
    assert path.stat().st_size <= 64 * 1000
    got = load(path)[1].messages["begin"]
    assert (abs(got.astype(float) - late) <= 20e-6 * HZ * 450).all()
    assert late in got


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SystemLimit, match="others can write there"):
        keep(tmp_path, HEAD, records(), MIB, 4)
    with pytest.raises(SystemLimit, match=r"keep a trace in .*: (File exists|Not a directory)"):
        keep(Path("/dev/null"), HEAD, records(), MIB, 4)
    assert names(tmp_path / "nowhere") == []


def test_garbage_in_a_file_is_counted(tmp_path: Path) -> None:
    path = keep(tmp_path, HEAD, records(8), MIB, 4)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\xff" * 100)
    assert load(path)[1].garbage == 2
    path.write_bytes(whole[:-1])
    head, found = load(path)
    assert (head, found.garbage, number(found)) == (HEAD, 1, 9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"corelane_trace": 2}, "its first line does not say so"),
        ({"hz": 0}, "its numbers cannot be"),
        ({"hz": "fast"}, "hz is 'fast'"),
        ({"at": 1e300}, "its numbers cannot be"),
        ({"broken": {}}, "'limit'"),
        ({"broken": None}, "NoneType"),
        ({"services": 3}, "not iterable"),
    ],
)
def test_a_head_is_checked(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = keep(tmp_path, HEAD, records(8), MIB, 4)
    head = json.loads(path.read_bytes().split(b"\n")[0])
    path.write_bytes(json.dumps(head | change).encode() + b"\nnull\n")
    with pytest.raises(CorelaneError, match=f"it is none, or of another version .*{said}"):
        load(path)


def test_lines_that_nest_deeper_than_is_read_are_none(tmp_path: Path) -> None:
    path = keep(tmp_path, HEAD, records(8), MIB, 4)
    head, rest = path.read_bytes().split(b"\n", 1)
    for data in (b"[" * 60_000 + b"\n" + rest, head + b"\n" + b"[" * 60_000 + b"\n"):
        path.write_bytes(data)
        with pytest.raises(CorelaneError, match="it is none"):
            load(path)


@given(st.binary(max_size=300))
@settings(max_examples=50)
def test_a_file_of_anything_is_refused_in_words(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "x.trace"
    path.write_bytes(data)
    with pytest.raises(CorelaneError, match="it is none"):
        load(path)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorelaneError, match="no file"):
        load(tmp_path / "pipe")
    with pytest.raises(CorelaneError, match="No such file"):
        load(tmp_path / "none")


# The recorder, look by look


class Rings:
    """Stands for runtime.trace.Segment."""

    pid, name, mode, one_in, hz = 42, "kv", "sampled", 1, HZ

    def __init__(self) -> None:
        self.next: list[Records] = []
        self.closed = 0

    def services(self) -> list[str]:
        return NAMES

    def read(self) -> Records:
        return self.next.pop(0) if self.next else Made(0, 1).records()

    def ask_samples(self, hz: int, seconds: float) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1


def at(second: float, slow: bool = False, n: int = 20, lost: int = 0) -> Records:
    """Requests that began about a second, each with an id of its own; one of them may be slow."""
    made = Made(n, int(second * 1000) + 1)
    made.us["runs"][n // 2] += 2000 * slow
    what = made.records()
    what.messages["begin"] += int(second * HZ)
    what.messages["id"] += int(second * 1000) << 24
    return replace(what, lost=lost)


@pytest.fixture
def flight(tmp_path: Path) -> Callable[..., tuple[Recorder, Rings, list[tuple[str, str]]]]:
    def make(**options: Any) -> tuple[Recorder, Rings, list[tuple[str, str]]]:
        rings, said = Rings(), list[tuple[str, str]]()
        trace = Trace(**{"slo": ("1ms",)} | options)
        folder = Path(trace.folder) if trace.folder else tmp_path
        return Recorder(rings, trace, folder, lambda event, text: said.append((event, text))), rings, said  # type: ignore[arg-type]

    return make


def go(one: Recorder, rings: Rings, parts: dict[float, Records]) -> None:
    """Look at these moments, and find this there."""
    for now, part in parts.items():
        rings.next.append(part)
        one.look(now)


def test_the_trace_around_a_broken_limit_is_kept(flight: Any, tmp_path: Path) -> None:
    one, rings, said = flight()
    go(one, rings, {1.0: at(1), 1.1: at(1.1, slow=True), 1.2: at(1.2)})
    assert names(tmp_path) == [], "what follows belongs to it"
    go(one, rings, {1.6: at(1.6), 1.7: at(1.7)})
    (name,) = names(tmp_path)
    head, found = load(tmp_path / name)
    assert len(found.messages) == 80
    assert (head.pid, head.name, head.broken.over, head.more) == (42, "kv", 1, 0)
    assert head.broken.id in found.messages["id"]
    assert [event for event, _ in said] == ["recorded"]
    assert f"corelane trace last {name.removesuffix('.trace')} explains it" in said[0][1]
    assert one.counts == {"broken": 1, "kept": 1, "lost": 0}


def test_what_is_broken_on_and_on_is_kept_ever_more_seldom(flight: Any, tmp_path: Path) -> None:
    one, rings, _ = flight()
    now, kept_at = 0.0, []
    while now < 20 * PAUSE_S:
        before = one.counts["kept"]
        go(one, rings, {now: at(now, slow=True)})
        kept_at += [now] * (one.counts["kept"] - before)
        now += 0.5
    gaps = [b - a for a, b in itertools.pairwise(kept_at)]
    assert gaps[:3] == pytest.approx([PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S], abs=1.1)
    assert one.counts["broken"] == one.counts["not_kept"] + one.counts["kept"] + (one._broken is not None)
    heads = [load(tmp_path / name)[0] for name in names(tmp_path)]
    assert sum(head.more for head in heads) <= one.counts["not_kept"]
    assert heads[1].more > 0
    go(one, rings, {now + 1000: at(now + 1000, slow=True), now + 1001: at(now + 1001)})
    assert one._pause_s == PAUSE_S, "after a long silence it is as at first"


def test_only_so_much_is_held_in_memory(flight: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "HELD", 100)
    one, rings, _ = flight()
    go(one, rings, {float(second): at(second) for second in range(50)})
    assert sum(map(number, one._held)) == one._n_held <= 120
    go(one, rings, {51.0: at(51, slow=True), 52.0: at(52)})
    found = load(tmp_path / names(tmp_path)[0])[1]
    assert len(found.messages) <= 140
    assert int(found.messages["begin"].max()) > 52 * HZ


def test_it_ends_with_what_it_was_about_to_keep(flight: Any, tmp_path: Path) -> None:
    """A thread looks once more when it is told to end, however little of its pause is over."""
    one, rings, _ = flight()
    rings.next = [at(1, slow=True)]
    one.look_s = 3600.0
    one.start()
    one.stop()
    one.stop()
    assert rings.closed == 2
    assert len(names(tmp_path)) == 1


def test_what_cannot_be_kept_is_said_and_counted(flight: Any) -> None:
    one, rings, said = flight(folder="/dev/null/traces")
    go(one, rings, {1.0: at(1, slow=True), 2.0: at(2)})
    assert one.counts["failed"] == 1
    assert said[0][0] == "unrecorded"
    assert "its trace is lost: keep a trace in /dev/null/traces" in said[0][1]


def test_it_looks_as_often_as_the_fullest_ring_needs(flight: Any) -> None:
    one, rings, _ = flight(records=256)
    for second in range(20):
        go(one, rings, {float(second): at(second, n=10)})
    assert one.look_s == recorder.LOOKS_S[1]
    for second in range(20, 40):
        go(one, rings, {float(second): at(second, n=1000, lost=5)})
    assert one.look_s == recorder.LOOKS_S[0]
    assert one.counts["lost"] == 100


def test_a_recorder_that_fails_says_so(flight: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, rings, said = flight()
    monkeypatch.setattr(rings, "read", lambda: 1 / 0)
    one.start()
    one.stop()
    assert one.counts["failed"] == 1
    assert said[0][0] == "unrecorded"
    assert "nothing is recorded any more: ZeroDivisionError" in said[0][1]


def test_a_listener_that_fails_harms_nobody(flight: Any, tmp_path: Path) -> None:
    one, rings, _ = flight()

    def fails(event: str, text: str) -> None:
        raise ValueError(event, text)

    one._tell = fails
    go(one, rings, {1.0: at(1, slow=True), 2.0: at(2)})
    assert len(names(tmp_path)) == 1
