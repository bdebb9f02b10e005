"""The spin application: `corelane run spin`. Requests take a synthetic time each, then are echoed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..runtime.errors import CorelaneError, check
from ._native import ffi, lib
from .registry import App, option

DISTRIBUTIONS = {
    "constant": lib.CL_SPINNER_CONSTANT,
    "exponential": lib.CL_SPINNER_EXPONENTIAL,
    "bimodal": lib.CL_SPINNER_BIMODAL,
    "request": lib.CL_SPINNER_REQUEST,
}


@dataclass(frozen=True)
class Options:
    """What `corelane run spin` takes."""

    port: int = option(9001, "UDP port")
    distribution: str = option("exponential", "of service times: constant, exponential, bimodal, request")
    mean_us: float = option(10.0, "mean service time; bimodal: the short one")
    long_us: float = option(500.0, "bimodal: the long service time")
    long_part: float = option(0.005, "bimodal: part of the requests that take long")
    seed: int = option(1, "of the service times drawn")
    short_most_us: float = option(0.0, "request: those that ask for this or less are a type of their own; 0: one queue")
    short_target_us: int = option(10, "how long requests of that type should wait at most")
    long_target_us: int = option(1000, "the same for the others")
    probes: bool = option(True, "look for preemption all the time; no: be interruptible at any instruction instead")


class Spin:
    """A table of service times and its handler. Close it, or use it through `setup`."""

    def __init__(self, options: Options) -> None:
        kind = DISTRIBUTIONS.get(options.distribution)
        if kind is None:
            known = ", ".join(DISTRIBUTIONS)
            raise CorelaneError("run spin", f"distribution {options.distribution!r} is not known", f"one of {known}")
        fields = {
            "distribution": kind,
            "mean_ns": options.mean_us * 1e3,
            "long_ns": options.long_us * 1e3,
            "long_part": options.long_part,
            "seed": options.seed,
            "boundary_ns": int(options.short_most_us * 1e3),
            "no_probes": not options.probes,
        }
        if options.short_most_us and options.distribution != "request":
            raise CorelaneError("run spin", "types are for distribution=request", "leave short_most_us out")
        if not 0 <= options.short_most_us <= 1e6:
            raise CorelaneError("run spin", f"short_most_us is {options.short_most_us:g}", "0 to 1e6")
        out, err = ffi.new("struct cl_spinner **"), ffi.new("char[256]")
        check(lib.cl_spinner_new(ffi.new("struct cl_spinner_config *", fields), out, err), "run spin", err)
        self._ptr = out[0]
        self._port = options.port

    @property
    def ptr(self) -> Any:
        """The `struct cl_spinner *`: the handler's arg."""
        return self._ptr

    @property
    def handler(self) -> Any:
        """The C handler."""
        return ffi.addressof(lib, "cl_spinner_handler")

    @property
    def ports(self) -> tuple[int, ...]:
        """Its UDP port."""
        return (self._port,)

    def times_ticks(self) -> list[int]:
        """The service times drawn, in ticks of the time-stamp counter."""
        return [int(t) for t in ffi.unpack(lib.cl_spinner_times(self._ptr), lib.CL_SPINNER_TIMES)]

    def stats(self) -> dict[str, int]:
        """requests: handled; ticks: time spun, in ticks."""
        requests, ticks = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.cl_spinner_stats(self._ptr, requests, ticks)
        return {"requests": int(requests[0]), "ticks": int(ticks[0])}

    def close(self) -> None:
        """Free the table. The runtime must have stopped. Closing twice is allowed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        lib.cl_spinner_delete(ptr)


def setup(runtime: Any, options: Options) -> Spin:
    """Draw the service times and bind the handler to a libos Runtime."""
    spin = Spin(options)
    try:
        _bind(runtime, options, spin)
    except CorelaneError:
        spin.close()
        raise
    return spin


def _bind(runtime: Any, options: Options, spin: Spin) -> None:
    what = f"serve UDP port {options.port}"
    if not options.short_most_us:
        check(lib.cl_runtime_bind_udp(runtime.ptr, options.port, spin.handler, spin.ptr), what)
        return
    targets = [options.short_target_us, options.long_target_us]
    if not all(1 <= target < 2**32 for target in targets):
        raise CorelaneError(what, f"targets of {targets} us", "1 or more")
    fields = {
        "n": 2,
        "target_us": targets,
        "classify": ffi.addressof(lib, "cl_spinner_classify"),
        "arg": spin.ptr,
    }
    types, err = ffi.new("struct cl_udp_types *", fields), ffi.new("char[256]")
    rc = lib.cl_runtime_bind_udp_typed(runtime.ptr, options.port, spin.handler, spin.ptr, types, err)
    check(rc, what, err)


APP = App("spin", "synthetic service times: constant, exponential or bimodal, then an echo", Options, setup)
