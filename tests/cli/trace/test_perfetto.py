"""What `corelane trace --out` writes, opened in Perfetto's own user interface: nothing is lost, and all is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser import Browser
from maderequests import HZ, NAMES, Made
from perfettoui import perfetto

from corelane.cli.trace import timeline
from corelane.cli.trace.output import Output

TITLES = {"kthreads: what they ran", "queues: who is at their head", "kthreads: what they stood still for"}


def test_perfetto_opens_a_trace(tmp_path: Path) -> None:
    made = Made(200, 7)
    made.us["blocked"][made.some(0.2)] = 5
    made.us["TX ring"][2] = 9
    made.gone.extend((kthread, 10**9, 10**9 + 5000) for kthread in (0, 1))
    events = list(timeline.events(made.records(), NAMES, HZ, 10**9))
    out = Output(tmp_path / "trace.json")
    assert out.write(events) is None
    out.close()
    slices = [event for event in events if event["ph"] == "X"]
    flows = [event for event in events if event["ph"] in "tf"]
    (folder := tmp_path / "site").mkdir()
    browser = Browser(tmp_path / "profile")
    try:
        with perfetto(browser, tmp_path / "trace.json", folder) as opened:
            assert opened.errors == 0
            counted = (
                "select process.name as title, count(*) as n, min(ts) as begin, max(ts + dur) as end from slice"
                " join thread_track on slice.track_id = thread_track.id join thread using (utid)"
                " join process using (upid) group by title"
            )
            asked = opened.ask(counted, "title", "n", "begin", "end")
            seen = {title: (n, begin, end) for title, n, begin, end in asked}
            assert seen.keys() == TITLES
            assert sum(n for n, _, _ in seen.values()) == len(slices)
            begin, end = min(e["ts"] for e in slices), max(e["ts"] + e["dur"] for e in slices)
            assert min(at for _, at, _ in seen.values()) == pytest.approx(1000 * begin, abs=2), "ns of microseconds"
            assert max(at for _, _, at in seen.values()) == pytest.approx(1000 * end, abs=2)
            assert opened.ask("select count(*) as n from flow", "n") == [(len(flows),)]
            named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
            assert opened.rows() >= {f"{named[tid]} {tid}" for tid in {event["tid"] for event in slices}}
    finally:
        browser.close()
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == json.loads(json.dumps(events))
