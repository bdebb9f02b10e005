"""What a policy did that is refused, in words: in its trial, or while it decided."""

from __future__ import annotations

import signal
from typing import Any

from ...runtime.clock import default_clock
from .._native import ffi, lib

CALL_LIMIT_NS = 5_000_000  # of one call in a trial


def explain(verdict: dict[str, Any]) -> tuple[str, str]:
    """A verdict as a reason and what to do about it."""
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


def why_ejected(event: Any) -> str:
    """Of a `struct cl_policy_event`: "it divided by zero", or so."""
    reason, app, grant = int(event.reason), int(event.app), int(event.grant)
    times = f", {lib.CL_POLICY_MOST_NONSENSE} decisions in a row"
    if reason == lib.CL_POLICY_UNWRITTEN:
        return f"it left the grant of apps[{app}] unwritten{times}"
    if reason == lib.CL_POLICY_NONSENSE:
        return f"it granted {signed(grant)} cores to apps[{app}]{times}"
    ms = default_clock().ticks_to_ns(int(event.ticks)) / 1e6
    return f"it {because(reason, int(event.signal), int(event.offset), 0, f'had not returned after {ms:.3g} ms')}"


def signed(grant: int) -> int:
    """A grant's 32 bits as the policy meant them: 1 - 2 is -1."""
    return int(ffi.cast("int32_t", grant))


def because(reason: int, signal_number: int, offset: int, n_apps: int, late: str) -> str:
    """Why a call of a policy was left, for "it ..."."""
    if reason == lib.CL_POLICY_LATE:
        return late
    if reason == lib.CL_POLICY_UNWATCHED:
        return "could not be called: no timer is left that would bound it (ulimit -i)"
    if reason == lib.CL_POLICY_OUTSIDE:
        row = offset // ffi.sizeof("struct cl_policy_app")
        of = f" of {n_apps} applications" if n_apps else ""
        return f"touched memory outside of its table{of}, where apps[{row}] would be"
    if signal_number == signal.SIGFPE:
        return "divided by zero"
    if signal_number in (signal.SIGSEGV, signal.SIGBUS):
        return "touched memory that is not there"
    return f"ended with {signal.Signals(signal_number).name}"
