"""A document with loads, stops and figures of every outcome, and what a page of it is made of."""

from __future__ import annotations

import io
from typing import Any

import pytest

from corelane.bench.harness.numbers import plain_all
from corelane.bench.harness.openloop import Curve, Point
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Stop


@pytest.fixture(scope="session")
def measured() -> dict[str, Any]:
    """The document of a run: a figure that is met, one that is missed, one that was not taken. Not to be changed."""
    with Session("echo", seconds=0.05, progress=io.StringIO()) as session:
        for name, scale in (("ours", 1.0), ("theirs <b>&amp;</b>", 8.0)):
            points = [
                Point(r, r, 1000, 1000, p50_us=scale * r / 1e4, p99_us=scale * r / 1e3, p999_us=scale * r / 3e2)
                for r in (1e4, 1e5, 1e6)
            ]
            session.curve(name, Curve(points, "0.4 % unanswered", Stop("worker busy", "worker 100 % busy")))
        session.figure("echo.p50_over_cacheline", 3.0, runs=[2.5, 3.0, 3.5])
        session.figure("echo.rps_per_core", 1e6, runs=[1e6], beside={"a reflector": 2e6})
        session.figure("kv.get_rps_per_core", None, reason="there was no <script>alert(1)</script>")
        session.skip("linux", "needs root")
        session.note("something was noticed")
    document = session.document()
    document["canary"] |= {"loud": False}  # whatever else this machine does now
    document["figures"] = plain_all(session.figures)
    return document
