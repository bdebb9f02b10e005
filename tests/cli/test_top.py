"""What `top` makes of statistics, and `watch` of two of them. With an iokernel: test_end_to_end.py."""

from __future__ import annotations

import argparse
import collections
import copy
import json
import math
import os
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cli import tables, top, watch
from corelane.iokernel import Iokernel
from corelane.iokernel.control.report import summary
from corelane.runtime._native import lib
from corelane.runtime.errors import CorelaneError
from corelane.runtime.hist import Hist

STEPS = ("idle", "wake", "parked", "ask", "interrupt", "evict")
MARKS = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
LONG_AGO = [900_000.0] * 1000  # when the machine was bad


def times(*us: float) -> dict[str, Any]:
    """report.summary of these, each in a bucket that is as narrow as can be."""
    ns = sorted(round(1e3 * value) for value in us)
    if not ns:
        return {"n": 0, "sum_ns": 0, "buckets_ns": []} | dict.fromkeys((*MARKS, "max_us"))
    marks = {name: ns[math.ceil(part * len(ns)) - 1] / 1e3 for name, part in MARKS.items()}
    buckets = [[value, value, count] for value, count in sorted(collections.Counter(ns).items())]
    return {"n": len(ns), **marks, "max_us": ns[-1] / 1e3, "sum_ns": sum(ns), "buckets_ns": buckets}


def app(name: str, number: int, kind: str, **cores: Any) -> dict[str, Any]:
    got = {"class": kind, "guaranteed": 0, "maximum": 1, "weight": 1, "deadline_us": 0, "quantum_us": 0}
    got |= {"cores": 0, "core_s": 0.0, "moves_in": 0, "moves_out": 0, "asked": 0, "interrupted": 0, "evicted": 0}
    got |= {"packet_age_ns": 0, "thread_age_ns": 0, "timer_age_ns": 0, "storage_age_ns": 0}
    got |= {"detection": times(*LONG_AGO), "actuation": times()}
    out = {"id": number, "name": name, "pid": 100 + number, "ipv4": f"10.77.0.{number}", "kthreads": 1, "cpus": [1]}
    out |= {"buffers_lent": 0, "rx_delivered": 0, "tx_taken": 0, "rx_dropped_ring_full": 0, "cores": got | cores}
    return out


def statistics() -> dict[str, Any]:
    return {
        "pid": 42,
        "socket": "/run/corelane.sock",
        "mode": "adaptive",
        "generation": 7,
        "uptime_s": 10.0,
        "loops": [{"cpu": 0, "busy_s": 1.0, "sleeps": 3}],
        "uplinks": [],
        "apps": [app("kv", 1, "latency", guaranteed=1), app("job", 2, "batch")],
        "cores": {
            "policy": {"name": "delay", "params": {"target_us": 10}, "ejected": None},
            "cpus": [
                {"cpu": 1, "loop": 0, "owner": "job", "kthread": 0, "busy": True, "moves": 0, "busy_s": 0.0},
                {"cpu": 2, "loop": 0, "owner": None, "kthread": None, "busy": False, "moves": 0, "busy_s": 0.0},
            ],
            "allocators": [
                {
                    "loop": 0,
                    "decisions": 0,
                    "moves": 0,
                    "violations": 2,
                    "violations_asleep": 3,
                    "violations_late": 1,
                    "blocked": 4,
                    "late_decisions": 1234,
                    "interrupts_failed": 0,
                    "evictions_failed": 3,
                    "decision": times(*LONG_AGO),
                    "actuation": dict.fromkeys(STEPS, times()) | {"ask": times(9.0)},
                    "policy": None,
                }
            ],
        },
    }


def later() -> dict[str, Any]:
    stats = copy.deepcopy(statistics())
    stats["uptime_s"] = 12.0
    stats["loops"][0]["busy_s"] = 2.0
    kv, job = stats["apps"]
    kv |= {"rx_delivered": 200_000, "tx_taken": 199_000, "rx_dropped_ring_full": 20}
    kv["cores"] |= {"cores": 1, "core_s": 0.5, "moves_in": 100, "asked": 4, "packet_age_ns": 1500}
    kv["cores"] |= {"timer_age_ns": 20_000, "storage_age_ns": 75_000}
    kv["cores"]["detection"] = times(*LONG_AGO, *[5.0] * 98, 1234.0, 5000.0)
    kv["cores"]["actuation"] = times(*[1.8] * 98, 61.0)
    job["cores"] |= {"core_s": 1.4, "moves_out": 98, "interrupted": 2, "evicted": 1, "thread_age_ns": 2_500_000}
    stats["cores"]["cpus"][0] |= {"moves": 200, "busy_s": 1.9}
    allocator = stats["cores"]["allocators"][0]
    allocator |= {"decisions": 400_000, "moves": 200, "decision": times(*LONG_AGO, *[0.21] * 90, *[0.48] * 10)}
    allocator["actuation"]["ask"] = times(9.0, *[1.9] * 50, *[2.2] * 44, *[3.5] * 5, 40.0)
    return stats


def row_of(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.split()[:1] == [name]).split()


def test_rates_are_differences_over_the_iokernels_own_time():
    got = watch.rates(statistics(), later())
    kv, job = got["apps"]
    assert kv["rates"]["rx_delivered"] == 100_000
    assert kv["cores"]["rates"]["moves_in"] == 50
    assert job["cores"]["rates"]["core_s"] == pytest.approx(0.7)
    assert got["loops"][0]["rates"]["busy_s"] == 0.5
    assert got["cores"]["cpus"][0]["rates"]["moves"] == 100
    assert got["cores"]["allocators"][0]["rates"]["decisions"] == 200_000


def test_only_counters_have_rates():
    before, after = statistics(), later()
    got = watch.rates(before, after)
    for row in [*got["loops"], *got["apps"], *(app["cores"] for app in got["apps"]), *got["cores"]["cpus"]]:
        assert not {"id", "pid", "cpu", "loop", "kthread", "cores", "maximum", "packet_age_ns"} & set(row["rates"])
    assert set(got["apps"][0]["rates"]) == {"rx_delivered", "tx_taken", "rx_dropped_ring_full"}


def test_percentiles_are_of_what_came_since():
    got = watch.rates(statistics(), later())
    kv, job = got["apps"]
    seen = kv["cores"]["recent"]["detection"]
    assert seen == {"n": 100, "p50_us": 5.0, "p90_us": 5.0, "p99_us": 1234.0, "p999_us": 5000.0, "max_us": 5000.0}
    assert kv["cores"]["detection"]["p50_us"] == LONG_AGO[0], "the whole life's stay beside"
    assert job["cores"]["recent"]["detection"] == {"n": 0} | dict.fromkeys((*MARKS, "max_us"))
    steps = got["cores"]["allocators"][0]["recent"]["actuation"]
    assert {name: step["n"] for name, step in steps.items()} == dict.fromkeys(STEPS, 0) | {"ask": 100}
    assert (
        watch.rates({**statistics(), "generation": 6}, later())["apps"][0]["cores"]["recent"]["detection"]["n"] == 1100
    )


@given(st.lists(st.integers(0, 5000), max_size=60), st.lists(st.integers(0, 5000), max_size=60))
def test_what_came_since_is_what_was_recorded_meanwhile(first, second):
    hist = Hist(2)
    hist.record_all(first)
    before = summary(hist.ptr)
    hist.record_all(second)
    told = watch.since(before, summary(hist.ptr))
    assert told["n"] == len(second)
    if not second:
        assert set(told.values()) == {0, None}
        return
    for name, part in (MARKS | {"max_us": 1.0}).items():
        ns = sorted(second)[max(math.ceil(part * len(second)), 1) - 1]
        bucket = lib.cl_hist_bucket(hist.ptr, ns)
        assert ns / 1e3 <= told[name] <= lib.cl_hist_bucket_high(hist.ptr, bucket) / 1e3


def test_an_application_that_came_since_has_counted_from_nothing():
    before = statistics()
    del before["apps"][0]
    assert watch.rates(before, later())["apps"][0]["rates"]["tx_taken"] == 99_500


def test_another_iokernel_has_counted_from_nothing():
    before, after = statistics(), later()
    before["apps"][0]["rx_delivered"], before["generation"] = 10**9, 6
    assert watch.rates(before, after)["apps"][0]["rates"]["rx_delivered"] == 200_000 / 12


def test_what_top_shows():
    text = tables.render(watch.rates(statistics(), later()))
    lines = text.splitlines()
    assert lines[0] == "iokernel pid 42 on /run/corelane.sock, up 12 s, adaptive polling"
    assert lines[1] == "policy delay target_us=10, worker cores 1, 2"
    assert row_of(text, "NAME") == [*tables.HEAD]
    kv = dict(zip(tables.HEAD, row_of(text, "kv"), strict=True))
    assert kv == {
        "NAME": "kv",
        "CLASS": "latency",
        "CORES": "1",
        "CORE%": "25.0",
        "GUAR/MAX": "1/1",
        "IN/s": "100,000",
        "OUT/s": "99,500",
        "PKT-AGE": "1.5us",
        "THR-AGE": "0us",
        "TMR-AGE": "20.0us",
        "DSK-AGE": "75.0us",
        "DET50": "5.0us",
        "DET99": "1.2ms",
        "ACT50": "1.8us",
        "ACT99": "61.0us",
        "GAINED/s": "50",
        "LOST/s": "0",
        "ASK/s": "2",
        "INT/s": "0",
        "EVICT/s": "0",
        "DROPS/s": "10",
    }
    job = dict(zip(tables.HEAD, row_of(text, "job"), strict=True))
    assert (job["CORE%"], job["THR-AGE"], job["DET99"], job["ACT99"], job["LOST/s"]) == (
        "70.0",
        "2.5ms",
        "-",
        "-",
        "49",
    )
    assert text.index("\njob") < text.index("\nkv"), "most core use first"
    assert row_of(text, "1") == ["1", "job.0", "runs", "95.0", "100"]
    assert row_of(text, "2") == ["2", "nobody", "free", "0.0", "0"]
    said = "allocator of loop 0: 200,000 decisions/s, p50 0.2us, p99 0.5us; 100 moves/s; "
    said += "2 times work waited beside an idle core, 3 while the loop slept, 1 more in 1,234 decisions that came late"
    assert said in text
    assert row_of(text, "ask") == ["ask", "101", "100", "1.9us", "2.2us", "3.5us", "40.0us"]
    assert "evict " not in text, "steps that never happened take no line"
    assert "refused by the kernel: 3 evictions" in text
    assert lines[-1] == "loop on cpu 0: 50.0 % busy"


def test_columns_are_under_their_heads():
    text = tables.render(watch.rates(statistics(), later())).splitlines()
    at = next(i for i, line in enumerate(text) if line.startswith("NAME"))
    ends = [text[at].index(head) + len(head) for head in tables.HEAD[2:]]
    for line in text[at + 1 : at + 3]:
        assert all(line[end - 1] != " " and line[end : end + 1] in ("", " ") for end in ends), line


@pytest.mark.parametrize("width", [60, 80, 100, 120, 240])
def test_columns_that_fit_are_shown(width):
    text = tables.render(watch.rates(statistics(), later()), width)
    assert max(map(len, text.splitlines())) <= width
    heads = row_of(text, "NAME")
    assert heads == [head for head in tables.HEAD if head in tables.WANTED[: len(heads)]], "the wanted, in their order"
    assert len(heads) >= (21 if width == 240 else width // 10), "no more is left out than must be"
    assert len(row_of(text, "kv")) == len(heads)
    assert sorted(tables.WANTED) == sorted(tables.HEAD)


def test_without_managed_cores_top_says_how_to_get_them():
    before, after = statistics(), later()
    for stats in (before, after):
        stats["cores"] = None
        for each in stats["apps"]:
            each["cores"] = None
    text = tables.render(watch.rates(before, after))
    assert "corelane up --policy NAME has them move" in text
    assert row_of(text, "kv")[:7] == ["kv", "-", "-", "-", "-", "100,000", "99,500"]


def test_a_policy_that_was_ejected_is_told():
    stats = later()
    stats["cores"]["policy"]["ejected"] = "a decision took longer than allowed"
    assert watch.policy_line(stats) == (
        "policy delay, in place of delay target_us=10: a decision took longer than allowed"
    )


def test_nobody_attached():
    stats = statistics()
    stats["apps"] = []
    assert "no application is attached" in tables.render(watch.rates(stats, stats))


@pytest.mark.parametrize(
    ("us", "text"),
    [(None, "-"), (0, "0us"), (0.25, "0.2us"), (9.96, "10.0us"), (123.4, "123us"), (1000, "1.0ms"), (2.5e6, "2.5s")],
)
def test_times_are_short(us: float | None, text: str):
    assert tables._us(us) == text


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """top.run sees these statistics, one after the other, and then no iokernel."""
    given: list[dict[str, Any]] = []

    def now(asked: watch.Asked, wait_s: float = 0.0) -> dict[str, Any]:
        if not given:
            raise CorelaneError(f"no iokernel listens on {asked.path}", hint="start one: corelane up")
        return given.pop(0)

    monkeypatch.setattr(watch.Asked, "now", now)
    return given


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return parser.parse_args(["--socket", "/x.sock", "-d", "0", *words])


def test_blocks_without_a_terminal(shown, capsys):
    shown += [statistics(), later(), later()]
    assert top.run(options("-n", "2")) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("iokernel pid 42") == 2


def test_who_looks_once_has_the_usual_priority_and_who_looks_on_gives_way(shown, capsys, monkeypatch):
    """With all of its threads. A call of `run` alone leaves them as they are."""
    given: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "setpriority", lambda *words: given.append(words))
    for n, nice in ((1, 19), (3, 0)):
        shown += [statistics(), *(later() for _ in range(n))]
        once = options("-n", str(n))
        once.nice = nice
        assert top.run(once) == 0
        assert not given
    shown += [statistics(), later(), later()]
    on = options("-n", "2")
    on.nice = 19
    threads = {int(tid) for tid in os.listdir("/proc/self/task")}
    assert top.run(on) == 0
    assert set(given) >= {(os.PRIO_PROCESS, tid, 19) for tid in threads}
    assert len(given) == len(set(given)), "once"


def test_a_terminal_without_the_library_gets_blocks_and_is_told(shown, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", sys.stdout)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shown += [statistics(), later()]
    with pytest.raises(CorelaneError, match="has ended"):
        top.run(options())
    out, err = capsys.readouterr()
    assert out.startswith("iokernel pid 42")
    assert "\x1b" not in out
    assert err == "corelane top: for a screen with keys: pip install 'corelane[top]'\n"


@pytest.mark.parametrize("words", [("--once",), ("-n", "1"), ("--plain", "-n", "1"), ("--json", "-n", "1")])
def test_who_wants_text_gets_no_screen(shown, capsys, monkeypatch, words):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown += [statistics(), later()]
    assert top.run(options(*words)) == 0
    assert "\x1b" not in capsys.readouterr().out


def counted(app: dict[str, Any], published_s: float, **values: int) -> None:
    app["counters"] = {"published_s": published_s, "values": values}


def test_requests_of_an_application_that_counts_them():
    before, after = statistics(), later()
    counted(before["apps"][0], 1.0, handled=1000)
    counted(after["apps"][0], 3.0, handled=201_000)
    text = tables.render(watch.rates(before, after))
    at = text.splitlines().index("SERVICE    REQ/s  P50  P99  P99.9  WHY")
    assert text.splitlines()[at + 1].split() == ["kv", "100,000", "-", "-", "-", "-"]


def test_services_with_their_latency():
    before, after = statistics(), later()
    before["apps"][0]["services"] = [{"name": "udp:11211", "requests": 100, "latency": times(*LONG_AGO)}]
    recent = times(*LONG_AGO, *[5.0] * 980, *[30.0] * 19, 1000.0)
    after["apps"][0]["services"] = [
        {"name": "udp:11211", "requests": 2100, "latency": recent, "why": "runqueue"},
        {"name": "tcp:11211", "requests": 50, "latency": times()},
    ]
    text = tables.render(watch.rates(before, after))
    lines = [line.split() for line in text.splitlines()]
    assert ["kv", "udp:11211", "1,000", "5.0us", "30.0us", "30.0us", "runqueue"] in lines
    assert ["kv", "tcp:11211", "25", "-", "-", "-", "-"] in lines


def test_everything_of_one_application(shown, capsys):
    before, after = statistics(), later()
    counted(before["apps"][0], 1.0, handled=1000, dropped_udp_checksum=1)
    counted(after["apps"][0], 3.0, handled=3000, dropped_udp_checksum=7)
    shown += [before, after]
    assert top.run(options("--app", "kv", "-n", "1")) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("kv: pid 101, 10.77.0.1, 1 kthreads on cpus 1\n")
    assert ["dropped_udp_checksum", "7", "3"] in lines
    assert ["handled", "1,000"] in lines
    assert ["rx_delivered", "100,000"] in lines
    assert "job" not in out


def test_an_application_that_is_not_there(shown):
    shown += [statistics(), later()]
    with pytest.raises(CorelaneError, match=r"show web: .*there are: kv, job"):
        top.run(options("--app", "web", "--once"))


def test_json_is_a_line_each_time(shown, capsys):
    shown += [statistics(), later(), later()]
    top.run(options("-n", "2", "--json"))
    first, _second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["apps"][0]["rates"]["rx_delivered"] == 100_000


def test_the_end_of_the_iokernel_is_a_sentence(shown):
    with pytest.raises(CorelaneError, match="no iokernel listens"):
        top.run(options())
    shown += [statistics(), later()]
    with pytest.raises(CorelaneError, match=r"the iokernel on /x\.sock has ended"):
        top.run(options())


def test_an_iokernel_is_asked_over_one_connection_and_its_successor_over_another(socket_path: str) -> None:
    with Iokernel(socket_path) as first, watch.Asked(socket_path) as asked:
        before = asked.now()
        assert asked.now()["control"]["connections"] == before["control"]["connections"] == 1
        first.stop()
        with pytest.raises(CorelaneError, match="no iokernel listens on"):
            asked.now()
        with Iokernel(socket_path) as second:
            assert asked.now()["generation"] != before["generation"]
            assert second.stats()["control"]["connections"] == 1
        asked.close()
