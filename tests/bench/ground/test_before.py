"""The comparison with an older tree, whose command is a program that hands out documents."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from corelane.bench.ground import before
from corelane.bench.harness import document as doc
from corelane.bench.harness.session import Session
from corelane.runtime.errors import CorelaneError

VALUES = {  # of the trees: a rate, a time, one that only one has, one without a value
    "old": {"echo.rps_per_core": 4e6, "echo.p50_over_cacheline": 2.0, "kv.get_rps_per_core": 1e6},
    "new": {"echo.rps_per_core": 5e6, "echo.p50_over_cacheline": 2.5, "afxdp.p50_over_reflector": 1.0},
}


def test_more_is_better_whichever_way_a_figure_counts():
    found = before.ratios([VALUES["old"]] * 2, [VALUES["new"]] * 2)
    assert found == {"echo.rps_per_core": [1.25, 1.25], "echo.p50_over_cacheline": [0.8, 0.8]}


def command(folder: Path, name: str, values: dict[str, float]) -> str:
    """A program that writes these figures as the document of each benchmark, but for AF_XDP's, in which it fails."""
    document = folder / f"{name}.json"
    with Session("echo", seconds=0.01, progress=io.StringIO(), shallow_idle=False) as session:
        for figure, value in values.items():
            session.figure(figure, value)
        session.figure("kv.over_memcached_udp", None, reason="not here")
    document.write_text(json.dumps(session.document()))
    program = folder / name
    program.write_text(
        f"#!/bin/sh\n[ $2 = afxdp ] && [ -e {folder}/broken ] && {{ echo it breaks >&2; exit 1; }}\n"
        f'while [ "$1" != --json ]; do shift; done\ncp {document} $2\n'
    )
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session whose trees are two such programs."""
    old, new = (command(tmp_path, name, values) for name, values in VALUES.items())
    monkeypatch.setattr(before.sys, "executable", new)
    options = argparse.Namespace(before=old)
    return Session("ground", seconds=0.01, options=options, progress=io.StringIO(), shallow_idle=False)


def test_the_worst_figure_is_the_result(session: Session):
    with session:
        before.measure(session)
    document = session.document()
    assert doc.problems(document) == []
    figure = document["figures"][before.FIGURE]
    assert (figure["value"], figure["runs"]) == (0.8, [0.8] * before.ROUNDS)
    rows = {row["name"]: row for row in document["arms"]}
    assert rows["echo.rps_per_core"]["over_before"] == 1.25
    assert (rows["echo.rps_per_core"]["before_median"], rows["echo.rps_per_core"]["after_median"]) == (4e6, 5e6)
    assert rows["echo.rps_per_core"]["before_over_itself"] == 1.0
    assert any("echo.p50_over_cacheline, the worst of 2 figures" in note for note in session.notes)


@pytest.mark.parametrize(
    ("ratios", "itself", "value", "met"),
    [
        ({"a": 0.7, "b": 0.99}, {"a": 1.4, "b": 1.01}, 0.99, True),  # a does not agree with itself
        ({"a": 0.97, "b": 1.2}, {"a": 0.96, "b": 1.0}, 0.97, None),  # no further than the older tree from itself
        ({"a": 0.9, "b": 1.2}, {"a": 0.96, "b": 1.0}, 0.9, False),
        ({"a": 0.9}, {"a": 1.2}, None, None),
    ],
)
def test_what_the_older_tree_is_to_itself_bounds_the_judgement(
    ratios: dict[str, float], itself: dict[str, float], value: float | None, met: bool | None
):
    with Session("ground", seconds=0.01, progress=io.StringIO(), shallow_idle=False) as session:
        before.judge(session, {name: [one] * before.ROUNDS for name, one in ratios.items()}, itself)
    figure = session.figures[before.FIGURE]
    assert (figure["value"], figure["met"]) == (value, met)


def test_a_tree_that_fails_is_named(session: Session, tmp_path: Path):
    (tmp_path / "broken").touch()
    with session, pytest.raises(CorelaneError, match=r"old bench afxdp.*it breaks"):
        before.measure(session)


def test_without_an_older_tree_the_figure_says_what_to_give():
    with Session("ground", seconds=0.01, progress=io.StringIO(), shallow_idle=False) as session:
        before.measure(session)
    session.finish([before.FIGURE])
    assert "--before" in session.document()["figures"][before.FIGURE]["reason"]
