"""What the HTTP benchmark makes of its rounds, and that its client tells a right answer from a wrong one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.bench.baseline import nginx
from corelane.bench.harness.session import Session
from corelane.bench.http import http


def found(rate: float) -> http.Found:
    return http.Found(rate, rate * 1024, 10.0, 20.0, 0, 0, 0.9, 0.5)


def report(**rates: list[float]) -> dict[str, Any]:
    """The document of rounds that are made up: every case of a server has the same rate."""
    with Session("http", seconds=0.02) as session:
        rounds = {name: [{case: found(rate) for case in http.CASES} for rate in each] for name, each in rates.items()}
        http.conclude(session, rounds)
    session.finish(http.FIGURES)
    return session.document()


def test_figures_pair_the_rounds() -> None:
    document = report(ours=[10.0, 30.0, 20.0], nginx=[10.0, 10.0, 10.0])
    assert {name: figure["value"] for name, figure in document["figures"].items()} == dict.fromkeys(http.FIGURES, 2.0)
    assert document["figures"]["http.over_nginx"]["met"] is not False
    assert {arm["name"] for arm in document["arms"]} == {
        f"{server}: {case.name}" for server in http.SERVERS for case in http.CASES
    }
    assert any("the bound is the client" in note for note in document["settings"]["notes"])


def test_the_bound_stands_beside_the_figure_of_its_case() -> None:
    with Session("http", seconds=0.02) as session:
        both = (("ours", 20.0), ("nginx", 10.0))
        rounds = {name: [{case: found(rate) for case in http.CASES}] * 3 for name, rate in both}
        http.conclude(session, rounds | {http.BOUND: [{http.BOUND_CASE: found(25.0)}] * 3})
    figures = session.document()["figures"]
    assert figures["http.over_nginx"]["beside"] == {http.BOUND: 2.5}
    assert not any(figures[name].get("beside") for name in http.FIGURES[1:])


def test_without_a_baseline_there_is_no_figure() -> None:
    document = report(ours=[10.0])
    assert all(figure["value"] is None and figure["reason"] for figure in document["figures"].values())
    assert report(ours=[10.0, 0.0], nginx=[1.0, 1.0])["figures"]["http.over_nginx"]["value"] is None


@pytest.fixture(params=["ours", "nginx"])
def asked(request: pytest.FixtureRequest, tmp_path: Path, netns: Any) -> Iterator[tuple[Any, http.Client, http.Site]]:
    """A server with the benchmark's site, and its client."""
    if why := http.missing() or (request.param == "nginx" and nginx.missing()):
        pytest.skip(why)
    near, far = netns.link(addresses=(http.SERVER, http.CLIENT))
    cpus = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        site = http.Site.make(tmp_path)
        client = http.Client(far, near.mac.hex(":"), cpus[0], stack)
        busy = stack.enter_context(http.SERVERS[request.param](near, cpus[-1], site))
        yield busy, client, site


def until_answered(client: http.Client, case: http.Case, busy: Any) -> Any:
    """Found of a slot in which something was answered: beside others a request may take longer than the slot."""
    for _ in range(10):
        one = http.measure(client, case, 0.3, busy)
        if one.rate > 0 or one.wrong > 0:
            break
    return one


@pytest.mark.root
def test_answers_are_counted(asked: tuple[Any, http.Client, http.Site]) -> None:
    busy, client, site = asked
    for case in (http.Case("1 KiB", True, False), http.Case("1 MiB", False, True)):
        one = until_answered(client, case, busy)
        assert one.rate > 0
        assert one.body_bytes_s == pytest.approx(one.rate * http.SIZES[case.size])
        assert (one.wrong, one.failed) == (0, 0)
        assert 0 < one.p50_us <= one.p99_us
    (site.root / http.path_of("1 KiB")[1:]).unlink()
    subprocess.run(["sleep", "1.2"], check=True)  # both servers may answer from memory for a second
    one = until_answered(client, http.Case("1 KiB", True, False), busy)
    assert one.rate == 0
    assert one.wrong > 0


@pytest.mark.root
def test_the_bound_answers_what_ours_does(tmp_path: Path, netns: Any) -> None:
    if why := http.missing():
        pytest.skip(why)
    near, far = netns.link(addresses=(http.SERVER, http.CLIENT))
    cpus = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        site = http.Site.make(tmp_path)
        client = http.Client(far, near.mac.hex(":"), cpus[0], stack)
        for serve in (http.ours, http.bound):
            with serve(near, cpus[-1], site) as busy:
                one = http.measure(client, http.BOUND_CASE, 0.2, busy)
                assert one.rate > 0
                assert one.body_bytes_s == pytest.approx(one.rate * 1024)
                assert (one.wrong, one.failed) == (0, 0)
