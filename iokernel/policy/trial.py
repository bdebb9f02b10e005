"""Trying a policy that is not built in, in a process of its own, before it may run in an iokernel's loop.

That process is candidate.py; what it found is turned into one sentence here. A process that dies, or does not come to
an end, is a finding too; the latter is killed with all that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from ...runtime.errors import ConfigError, Refused
from .._native import lib
from .verdict import explain

SEED = 20190226  # the same tables at every trial
TABLES = 4000
PATIENCE_S = 60.0  # importing the policy's module and numba, and compiling, included


def run(spec: str, params: Mapping[str, int | float] | Sequence[int], *, seed: int = SEED, tables: int = TABLES) -> str:
    """Try a policy, with settings by name or as words; returns the digest of the file that was tried.

    ConfigError for a module, a function or a setting that cannot be used; Refused says what else is wrong.
    """
    given = dict(params) if isinstance(params, Mapping) else list(params)
    job = {"spec": spec, "params": given, "seed": seed, "tables": tables}
    what = f"policy {spec!r} is refused"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-m", "corelane.iokernel.policy.candidate"]
    try:
        done = _tried(command, json.dumps(job, default=repr), env)  # what is no number is refused as a setting there
    except subprocess.TimeoutExpired:
        hint = "does its module do something when it is imported?"
        raise Refused(what, f"its trial did not come to an end in {PATIENCE_S:g} s", hint) from None
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise Refused(what, f"the process that tried it ended with {name}", "it harms more than its table")
    try:
        verdict = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        said = (done.stderr.strip().rpartition("\n")[2] or "nothing")[:200]
        raise Refused(what, f"its trial failed with status {done.returncode}: {said}") from None
    if "error" in verdict:
        kind, *said = verdict["error"]
        raise (ConfigError if kind == ConfigError.__name__ else Refused)(*said)
    if verdict["found"] != lib.CL_POLICY_FINE:
        raise Refused(what, *explain(verdict))
    return str(verdict["digest"])


_lock = threading.Lock()
_running: dict[int, subprocess.Popen[str]] = {}  # by the number of the thread that waits for it; under _lock


def _tried(command: Sequence[str], job: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    pipe, me = subprocess.PIPE, threading.get_ident()
    # In a session of its own, so that what it started and what holds its pipes is ended with it.
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", env=env, start_new_session=True
    ) as process:
        with _lock:
            _running[me] = process
        try:
            out, err = process.communicate(job, PATIENCE_S)
        except BaseException:
            _kill(process)
            raise
        finally:
            with _lock:
                del _running[me]
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:  # after that its number may be another's
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def stop(thread: int) -> None:
    """Kill the trial that the thread of this number waits for, if it does: its `run` raises Refused. Any thread."""
    with _lock:
        process = _running.get(thread)
        if process is not None:
            _kill(process)
