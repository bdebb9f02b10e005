"""Trying a policy that is not built in, in a process of its own, before it may run in an iokernel's loop.

`python -m corelane.iokernel.policy.trial` reads {"spec", "params", ...} from its input, imports or loads the policy and
calls it on generated tables (trial.h says what is looked for); its last line says in JSON what was found. The
caller turns that into one sentence. A process that dies, or does not come to an end, is a finding too; the latter is
killed with all that it started.
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
from typing import Any

from ...runtime.errors import ConfigError, CorelaneError, Refused, check
from .._native import ffi, lib

SEED = 20190226  # the same tables at every trial
TABLES = 4000
CALL_LIMIT_NS = 5_000_000
PATIENCE_S = 60.0  # importing the policy's module and numba, and compiling, included


def run(spec: str, params: Mapping[str, int | float] | Sequence[int], *, seed: int = SEED, tables: int = TABLES) -> str:
    """Try a policy, with settings by name or as words; returns the digest of the file that was tried.

    ConfigError for a module, a function or a setting that cannot be used; Refused says what else is wrong.
    """
    given = dict(params) if isinstance(params, Mapping) else list(params)
    job = {"spec": spec, "params": given, "seed": seed, "tables": tables}
    what = f"policy {spec!r} is refused"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-m", "corelane.iokernel.policy.trial"]
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


def explain(verdict: dict[str, Any]) -> tuple[str, str]:
    """A verdict as a reason and what to do about it."""
    from .policy import because, signed

    found, n, app = verdict["found"], verdict["n_apps"], verdict["app"]
    if found in (lib.CL_POLICY_LATE, lib.CL_POLICY_OUTSIDE, lib.CL_POLICY_FAULT, lib.CL_POLICY_UNWATCHED):
        late = f"did not return within {CALL_LIMIT_NS / 1e6:g} ms"
        hint = {lib.CL_POLICY_LATE: "bound its loops", lib.CL_POLICY_OUTSIDE: "stay within view.n_apps rows"}
        return f"it {because(found, verdict['signal'], verdict['offset'], n, late)}", hint.get(found, "")
    if found == lib.CL_POLICY_BEFORE:
        return "it wrote before apps[0]", "look at how its indices become negative"
    if found == lib.CL_POLICY_OVERWROTE:
        at = verdict["offset"] % ffi.sizeof("struct cl_policy_app")
        fields = ffi.typeof("struct cl_policy_app").fields
        name = next((n for n, f in reversed(fields) if f.offset <= at), "?")
        return f"it wrote {name} of an application", "a policy writes grant and memory only"
    if found == lib.CL_POLICY_UNWRITTEN:
        return f"it left the grant of apps[{app}] of {n} unwritten", "write the grant of every application, every time"
    if found == lib.CL_POLICY_NONSENSE:
        grant = signed(verdict["grant"])
        return f"it granted {grant} cores to an application", "a grant is a number of cores, from 0 on"
    if found == lib.CL_POLICY_UNSTEADY:
        return "it gave another answer to the same tables", "keep what it remembers in memory, of each application"
    us = verdict["ns"] / 1000
    limit = lib.CL_POLICY_TRIAL_NS / 1000
    return (
        f"it takes {us:.3g} us over {n} applications, and {limit:g} is the limit",
        "one pass over the table is enough",
    )


def trial(spec: str, params: dict[str, int | float] | list[int], seed: int, tables: int) -> dict[str, Any]:
    """The child's part: load it, try it."""
    from .policy import load

    policy = load(spec, params, trial=False)
    words, verdict = ffi.new("uint64_t[8]", list(policy.params)), ffi.new("struct cl_policy_verdict *")
    err = ffi.new("char[256]")
    function = ffi.cast("cl_policy_fn", policy.address)
    check(lib.cl_policy_trial(function, words, seed, tables, CALL_LIMIT_NS, verdict, err), f"try policy {spec}", err)
    fields = {name: getattr(verdict, name) for name, _ in ffi.typeof("struct cl_policy_verdict").fields}
    return fields | {"digest": policy.found.digest if policy.found else ""}


def main() -> int:
    """Read the job from standard input, print the verdict as the last line."""
    job = json.load(sys.stdin)
    try:
        verdict = trial(**job)
    except CorelaneError as error:
        verdict = {"error": [type(error).__name__, error.what, error.why, error.hint]}
    print(json.dumps(verdict), flush=True)
    os._exit(0)  # no destructors of what was loaded


if __name__ == "__main__":
    main()
