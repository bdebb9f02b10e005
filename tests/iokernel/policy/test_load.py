"""Policies by name, settings by name and in their units, the [policy] section, and installing in a host that runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest.cbuild import ROOT

from corelane.iokernel._native import ffi, lib
from corelane.iokernel.policy import policy
from corelane.iokernel.policy import trial as policy_trial
from corelane.iokernel.policy.modules import import_anew
from corelane.runtime.errors import ConfigError, CorelaneError, Refused, check


def test_the_table_of_built_in_ones_is_whole() -> None:
    names = []
    while (name := lib.cl_policy_name(len(names))) != ffi.NULL:
        names.append(ffi.string(name).decode())
    assert names == list(policy.BUILTIN)


def test_settings_have_units() -> None:
    loaded = policy.load("delay", {"target_us": 2.5, "calm": 3})
    assert loaded.params == (2500, 3, 10, 0, 0, 0, 0, 0)
    assert str(loaded) == "delay (target_us=2.5, calm=3, moves_percent=10)"
    least = policy.load("delay", {"target_us": 0, "calm": 0})  # what holds is shown
    assert (str(least), least.params[:2]) == ("delay (target_us=0.001, calm=1, moves_percent=10)", (1, 1))
    assert not loaded.guarded
    assert policy.load("delay").params[:2] == (10_000, 1)
    assert policy.load("delay", {"target_us": 0}).params[0] == 1  # not C's "default"
    assert policy.load("delay", [2500]).params == (2500, 0, 0, 0, 0, 0, 0, 0)
    assert policy.load("delay", [2500]).settings == {"target_us": 2.5}


@pytest.mark.parametrize("name", list(policy.BUILTIN))
def test_defaults_are_those_of_c(name: str) -> None:
    """With the defaults of Python a policy decides as with C's, which are those of a zero."""
    answers = []
    for params in (policy.load(name).params, (0,) * 8):
        view, apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", 16)
        grants = []
        for seed in range(300):
            lib.cl_policy_generate(seed, view, apps, 16, 8)
            view.params[0:8] = params
            lib.cl_policy_find(name.encode())(view, apps)
            grants.append([a.grant for a in apps])
        answers.append(grants)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"name": ""}, "policy ''.*there is none of that name"),
        ({"name": "fare"}, "'fare'.*there is none of that name.*static, shenango, delay, fair"),
        (
            {"name": "delay", "target": 5},
            "policy.target: .* no such setting .it has target_us, calm, moves_percent",
        ),
        ({"name": "static", "target_us": 5}, "policy.target_us.*it has none"),
        ({"name": "delay", "calm": -1}, "policy.calm: -1 is no setting"),
        ({"name": "delay", "calm": 1.5}, "policy.calm: 1.5 is no setting .a whole number"),
        ({"name": "delay", "target_us": True}, "True is no setting"),
        ({"name": "delay", "target_us": "10"}, "'10' is no setting"),
        ({"name": "delay", "target_us": float("inf")}, "inf is no setting"),
        ({"name": "no_such_module:f"}, "cannot import no_such_module"),
        ({"name": "math:no_such"}, "math has no no_such"),
        ({"name": "math:pi"}, "pi is no function"),
    ],
)
def test_a_setting_that_is_wrong_is_named(section: dict[str, Any], said: str) -> None:
    settings = {key: value for key, value in section.items() if key != "name"}
    with pytest.raises(ConfigError, match=said):
        policy.validate(section["name"], settings)
    with pytest.raises(ConfigError):
        policy.load(section["name"], settings)


MODULES = {
    "def f(view, apps:\n": "SyntaxError: '(' was never closed",
    "int('many')\n": "ValueError: invalid literal for int()",
    "import math\nmath.no_such\n": "AttributeError: module 'math' has no attribute 'no_such'",
    "import no_such_dependency\n": "No module named 'no_such_dependency' (install what broken_policy needs)",
    "from math import no_such\n": "ImportError: cannot import name 'no_such' from 'math'",
    "import sys\nsys.exit('goodbye')\n": "SystemExit: goodbye",
}


@pytest.mark.parametrize("text", list(MODULES))
def test_a_module_that_cannot_be_imported_says_why(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_policy.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for use in (policy.validate, policy.load):  # here, and in the trial's process
        with pytest.raises(ConfigError) as refused:
            use("broken_policy:f", {})
        said = str(refused.value)
        assert said.startswith(f"policy 'broken_policy:f': cannot import broken_policy: {MODULES[text]}"), said
        assert "\n" not in said


def test_a_module_is_imported_in_the_trial_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that never comes to the end of its import, or ends its process, does so there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(policy_trial, "PATIENCE_S", 2.0)
    for name, text, said in (
        ("waits_policy", "import threading\nthreading.Event().wait()\n", "did not come to an end in 2 s"),
        ("ends_policy", "import os\nos._exit(3)\n", "its trial failed with status 3"),
        ("dies_policy", "import os\nos.kill(os.getpid(), 9)\n", "ended with SIGKILL"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(Refused, match=said):
            policy.load(f"{name}:f")
        assert name not in sys.modules


def granted(loaded: policy.Policy) -> int:
    view, apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", 1)
    view.n_apps, view.n_cores, view.params = 1, 64, loaded.params
    apps[0].maximum = 64
    ffi.cast("cl_policy_fn", loaded.address)(view, apps)
    return int(apps[0].grant)


SIGNED = """
import functools
import numba

def f(view, apps, least=-1, slope=-0.5):
    for a in apps:
        a['grant'] = 10 + least + int(2 * slope)

class Chosen:
    def __init__(self, view, apps):
        pass
    def __call__(self, view, apps):
        pass

chosen = Chosen(0, 0)
part = functools.partial(f, least=2)
jitted = numba.njit(f)

def huge(view, apps, most=2**63):
    pass

def laboratory(view, jobs, cores, kinds, memory, quantum_us=10.0):
    pass
"""


@pytest.fixture
def signed_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "signed_policy.py").write_text(SIGNED)


@pytest.mark.usefixtures("signed_policy")
def test_settings_of_a_python_policy_may_be_negative() -> None:
    plain = policy.load("signed_policy:f", trial=False)
    given = policy.load("signed_policy:f", {"least": -3, "slope": -2.0})
    assert [granted(p) for p in (plain, given, given.with_settings(least=-1, slope=1.5))] == [8, 3, 12]
    for value, said in ((float("nan"), "a number"), (float("-inf"), "a number"), (-(2**63) - 1, "a whole number")):
        with pytest.raises(ConfigError, match=rf"policy.least: {value} is no setting \({said}"):
            policy.validate("signed_policy:f", {"least": value})


@pytest.mark.usefixtures("signed_policy")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Chosen", "use policy Chosen: it is a class .a policy is a Python function"),
        ("chosen", "it is an object of Chosen"),
        ("part", "it is an object of partial"),
        ("huge", "the default of most is 9223372036854775808"),
        ("laboratory", "it is one of the laboratory, which no iokernel runs .try it by corelane lab run"),
    ],
)
def test_what_is_no_python_function_is_refused_in_a_sentence(name: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        policy.load(f"signed_policy:{name}", trial=False)


def test_a_module_that_was_changed_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the module beside it, by its new settings; who imported it before keeps what he has."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "amount_of_mine.py").write_text("AMOUNT = 1\n")
    text = "from amount_of_mine import AMOUNT\ndef f(view, apps{}):\n    for a in apps:\n        a['grant'] = {}\n"
    (tmp_path / "mine_changes.py").write_text(text.format("", "AMOUNT"))
    first = policy.load("mine_changes:f", trial=False)
    held = importlib.import_module("mine_changes")
    (tmp_path / "amount_of_mine.py").write_text("AMOUNT = 2\n")
    second = policy.load("mine_changes:f", trial=False)
    (tmp_path / "mine_changes.py").write_text(text.format(", more=5", "AMOUNT + more"))
    third = policy.load("mine_changes:f", {"more": 4}, trial=False)
    assert [granted(p) for p in (first, second, third, third.with_settings(more=7))] == [1, 2, 6, 9]
    assert sys.modules["mine_changes"] is held
    assert held.AMOUNT == 1


def test_what_python_is_made_of_is_not_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules without a file lie in no folder: also not in the one that we are in, where a user's module may be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_is_here.py").write_text("import sys, time\ndef f(view, apps):\n    apps[0].grant = 1\n")
    made = import_anew("mine_is_here")
    assert made.sys is sys
    assert made.time is time


def test_a_shared_object_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    built = tmp_path / "p.so"
    for settings, value, expected in (("", "1", 1), ("more", "1 + (uint32_t)v->params[0]", 5)):
        code = f'{{ a[0].grant = {value} + 0 * v->n_apps; }}\nCL_POLICY(p, "{settings}")\n'
        (tmp_path / "p.c").write_text(
            "#include <corelane/iokernel/policy.h>\n"
            f"void p(const struct cl_policy_view *v, struct cl_policy_app *a)\n{code}"
        )
        command = ["gcc", "-O1", "-fPIC", "-shared", f"-I{ROOT}/include", tmp_path / "p.c", "-o", built]
        subprocess.run(command, check=True)
        loaded = policy.load(f"{built}:p", {"more": 4} if settings else {}, trial=False)
        assert granted(loaded) == expected


def test_what_is_tried_is_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path, run = tmp_path / "mine_moves.py", policy_trial.run
    path.write_text("def f(view, apps):\n    for a in apps:\n        a['grant'] = 1\n")

    def changed_meanwhile(*args: Any) -> str:
        tried = run(*args)
        path.write_text(path.read_text().replace("= 1", "= 2"))
        return tried

    monkeypatch.setattr(policy_trial, "run", changed_meanwhile)
    with pytest.raises(Refused, match="its file was changed while it was tried"):
        policy.load("mine_moves:f")
    monkeypatch.setattr(policy_trial, "run", run)
    assert granted(policy.load("mine_moves:f", trial=False)) == 2


@pytest.fixture
def looping() -> Iterator[policy.PolicyHost]:
    """A host whose loop decides without a pause, in a thread of its own."""
    out, err = ffi.new("struct cl_policy_host **"), ffi.new("char[256]")
    check(lib.cl_policy_host_new(0, 1_000_000, out, err), "make a host", err)
    view, apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", 2)
    view.n_apps, view.n_cores, view.interval_ns = 2, 2, 5000
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            lib.cl_policy_run(out[0], view, apps)

    thread = threading.Thread(target=loop)
    thread.start()
    yield policy.PolicyHost(out[0])
    stop.set()
    thread.join()
    lib.cl_policy_host_delete(out[0])


def test_installing_while_the_loop_runs(looping: policy.PolicyHost) -> None:
    assert looping.current == "static"
    looping.install(policy.load("delay", {"target_us": 50}))
    assert looping.current == "delay (target_us=50, calm=1, moves_percent=10)"
    assert looping.event() == ""
    counts = looping.stats()
    assert counts["swaps"] == 1
    assert counts["ejected"] == 0
    assert counts["decisions"] > 0
    assert counts["most_ns"] >= counts["last_ns"] > 0


def test_a_policy_that_goes_wrong_makes_an_event(looping: policy.PolicyHost, bad_policies: Path) -> None:
    bad = bad_policies
    for name, said in (
        ("divides", "it divided by zero"),
        ("beyond", "it touched memory outside of its table, where apps[2] would be"),
        ("loops", "it had not returned after"),
        ("one_less", "it granted -1 cores to apps[0], 100 decisions in a row"),
    ):
        before = looping.stats()["ejected"]
        looping.install(policy.load(f"{bad}:{name}", trial=False))
        while looping.stats()["ejected"] == before:
            pass
        event = looping.event()
        assert event.startswith(f"policy {bad}:{name} was ejected: {said}")
        assert event.endswith("; `delay` decides now")
        assert looping.event() == ""
        assert looping.current == "delay"


def test_a_loop_that_does_not_decide_is_said(c_library: Callable[..., Path]) -> None:
    out, err = ffi.new("struct cl_policy_host **"), ffi.new("char[256]")
    check(lib.cl_policy_host_new(0, 0, out, err), "make a host", err)
    with pytest.raises(CorelaneError, match="no decision was made in 0"):
        policy.PolicyHost(out[0]).install(policy.load("fair"), timeout_s=0.01)
    lib.cl_policy_host_delete(out[0])


@pytest.mark.parametrize("name", list(policy.BUILTIN))
def test_a_decision_can_be_timed(name: str) -> None:
    setting, err = ffi.new("struct cl_policy_setting *"), ffi.new("char[256]")
    setting.fn = lib.cl_policy_find(name.encode())
    for guarded in (0, 1):
        setting.guarded = guarded
        out = ffi.new("double[]", 100)
        check(lib.cl_policy_measure(setting, 16, 8, 1, 100, out, err), "time a decision", err)
        assert all(ns >= 0 for ns in out)
        assert max(out) > 0


def test_the_example_of_the_documentation_decides_in_a_host(
    looping: policy.PolicyHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    found = re.search(r"^```python file=headroom.py$(.*?)^```$", page, re.M | re.S)
    assert found is not None
    assert len(found[1].splitlines()) < 30
    (tmp_path / "headroom_of_docs.py").write_text(found[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = policy.load("headroom_of_docs:headroom", {"spare": 2})
    looping.install(loaded)
    assert looping.current == "headroom_of_docs:headroom (spare=2)"
    view, apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", 2)
    view.n_apps, view.n_cores = 2, 8
    view.params[0:8] = loaded.params
    apps[0].cores, apps[0].maximum, apps[0].thread_delay_ns = 3, 8, 1
    apps[1].kind, apps[1].maximum, apps[1].demand = lib.CL_POLICY_BATCH, 8, 8
    ffi.cast("cl_policy_fn", loaded.address)(view, apps)
    assert [a.grant for a in apps] == [6, 2]
    counts = looping.stats()
    assert counts["nonsense"] == counts["overwritten"] == counts["ejected"] == 0
    assert loaded.with_settings(spare=5).params[0] == 5
