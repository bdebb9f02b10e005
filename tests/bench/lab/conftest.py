"""Worlds of few jobs, and policies of a test's own."""

import pytest
from cltest.compiled import compile_lab_once

from corelane.bench.lab import loads, policy, world


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    compile_lab_once()


def run(at, work, kinds=None, *, kind=0, cores=1, chosen="fifo", settings=None, interval_ns=0, costs=None, **more):
    """Jobs that come at `at` and take `work`; more: of the machine and of the load's rows."""
    rows = {name: more.pop(name) for name in ("deadline_ns", "weight", "declared_ns") if name in more}
    load = loads.Load(kinds or (loads.Kind(),), loads.jobs(at, work, kind, **rows))
    machine = world.Machine(cores=cores, costs=costs or world.Costs(), **more)
    found = policy.load(chosen, settings) if isinstance(chosen, str) else chosen
    return world.World(load, machine, interval_ns=interval_ns).run(found)


@pytest.fixture(name="run")
def _run():
    return run


@pytest.fixture
def write_policy(tmp_path, monkeypatch):
    """A policy from the body of its function; returns its spec."""

    def write(text, name="mine"):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path / "cache"))  # its code is nobody else's
        return f"{name}:{name}"

    return write
