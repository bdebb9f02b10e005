"""The process that tries a policy: `python -m corelane.iokernel.policy.candidate`, started by trial.py.

It reads {"spec", "params", ...} from its input, imports or loads the policy and calls it on generated tables (trial.h
says what is looked for); its last line says in JSON what was found.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from .policy import load
from .verdict import CALL_LIMIT_NS


def trial(spec: str, params: dict[str, int | float] | list[int], seed: int, tables: int) -> dict[str, Any]:
    """Load it, try it."""
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
