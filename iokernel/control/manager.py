"""Managed cores, seen from the control thread: which policy decides, what applications claim, what is counted.

Deciding and moving is done by the loops in C (docs/cores.md); this owns the policy that is installed and what it was
loaded from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...runtime.errors import ConfigError, check
from .._native import ffi, lib
from ..policy.policy import Policy, load
from ..policy.verdict import why_ejected
from . import report
from .cores import KINDS, Claim, ManagedCores
from .settings import Allocation


class CoreManager:
    """The managed cores of one iokernel. The caller serialises all calls that take its `struct cl_io *`."""

    def __init__(self, cpus: Sequence[int], n_loops: int, policy: str, allocation: Allocation) -> None:
        if not cpus:
            raise ConfigError("manage cores", "no worker CPU is left for applications", 'set cores.policy = "none"')
        self.cores = ManagedCores(cpus, n_loops)
        self._allocation = allocation
        self._policy = load(policy, allocation.params)  # decides since the last `install`
        self._kept: list[tuple[int, Policy]] = []  # (ticket, policy): what the loops may still call

    def configure(self, config: Any) -> None:
        """Fill in the part of a `struct cl_io_config` that is about cores, for an iokernel that is about to be made."""
        self._kept.clear()  # of one that was stopped: its loops call nothing any more
        config.manage_cores, config.n_worker_cpus = 1, len(self.cores.cpus)
        for i, cpu in enumerate(self.cores.cpus):
            config.worker_cpus[i] = cpu
        for name, us in self._times().items():
            setattr(config, name, us)
        config.scan_only = not self._allocation.doorbell

    def _times(self) -> dict[str, int]:
        """{"interval_us", "cede_us", "interrupt_us"}, the same names as in C."""
        chosen = self._allocation
        return {name: getattr(chosen, name) for name in ("interval_us", "cede_us", "interrupt_us")}

    def install(self, io: Any, policy: Policy | None = None) -> str:
        """Have a loaded policy decide from the next decision on; returns that in a line. Raises CorelaneError."""
        policy = policy or self._policy
        setting, err = ffi.new("struct cl_policy_setting *"), ffi.new("char[256]")
        setting.fn, setting.guarded = ffi.cast("cl_policy_fn", policy.address), policy.guarded
        setting.params[0 : len(policy.params)] = policy.params
        ticket = check(lib.cl_io_policy_set(io, setting, err), f"install the policy {policy.spec}", err)
        self._kept.append((ticket, policy))
        # What was loaded stays until no loop calls it any more: from the next one on that all of them have taken.
        newest = max((t for t, _ in self._kept if lib.cl_io_policy_taken(io, t)), default=0)
        self._kept = [(t, p) for t, p in self._kept if t >= newest]
        self._policy = policy
        return f"{policy} decides"

    def fill(self, config: Any, claim: Claim) -> None:
        """Fill in the part of a `struct cl_io_app_config` that is about cores."""
        config.kind = KINDS[claim.kind]
        config.guaranteed, config.maximum, config.weight = claim.guaranteed, claim.maximum, claim.weight
        config.deadline_us, config.quantum_us = claim.deadline_us, claim.quantum_us
        config.quantum_signal = claim.quantum_signal

    def app_stats(self, io: Any, app: int, name: str, loop: int, claim: Claim, age_s: float) -> dict[str, Any]:
        """What an application claims, and what it got."""
        claimed = {"class" if key == "kind" else key: value for key, value in asdict(claim).items()}
        return {**claimed, **report.app_cores(io, app, name, age_s, len(self.cores.of_loop(loop)))}

    def stats(self, io: Any, names: Mapping[int, str]) -> dict[str, Any]:
        """{"policy", "interval_us", "cede_us", "interrupt_us", "cpus": report.core each, "allocators": one a loop with
        cores}. names: of the applications, by id."""
        loops = [loop for loop in range(self.cores.loops) if self.cores.of_loop(loop)]
        return {
            "policy": {
                "name": self._policy.spec,
                "params": dict(self._policy.settings),
                "ejected": next((why for loop in loops if (why := _ejected(io, loop, self._kept[-1][0]))), None),
            },
            **self._times(),
            "cpus": [report.core(io, i, names) for i in range(len(self.cores.cpus))],
            "allocators": [report.allocator(io, loop) for loop in loops],
        }


def _ejected(io: Any, loop: int, ticket: int) -> str | None:
    """Why `delay` decides in place of the policy that was installed with that ticket; None: it does not."""
    host = lib.cl_io_policy_host(io, loop)
    event = ffi.new("struct cl_policy_event *")
    if not host or not lib.cl_policy_host_event(host, event) or event.ticket != ticket:
        return None
    return why_ejected(event)


def parse_params(text: str) -> dict[str, int | float]:
    """{"name": number} of "name=value" words. Raises ConfigError."""
    params: dict[str, int | float] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        try:
            params[name] = int(value, 0) if value.lstrip("-").isalnum() and not value.isalpha() else float(value)
        except ValueError:
            equals = ""
        if not name or not equals:
            raise ConfigError(f"policy setting {word}", "it is not of the form name=number", "as in --set target_us=10")
    return params
