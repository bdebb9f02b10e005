"""What a runtime's ports are bound to, and its periodic work."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib
from .handlers.batching import BatchProfile, as_c, batching_of
from .handlers.handlers import Handler, Prepared, as_handler, check_port
from .handlers.periodic import Periodic
from .handlers.streams import StreamHandler


def _no_batches(doing: str, port: int) -> CorelaneError:
    why = f"no handler of UDP port {port} gets its requests in batches"
    return CorelaneError(doing, why, "bind one made with @libos.udp(batch=...)")


class Bound:
    """Binds, and knows what it has bound, in order: "UDP" or "TCP", the handler and its port; "" for periodic work."""

    stack_bytes: int
    _bound: list[tuple[str, Handler | StreamHandler | Periodic, int]]

    @property
    def ptr(self) -> Any:
        """The `struct cl_runtime *`."""
        raise NotImplementedError

    def bind(self, handler: Any, port: int | None = None) -> Handler | StreamHandler | Periodic:
        """Give a port to a handler: made by `udp`, `tcp` or `c_handler`, or a bare function, compiled as `udp` does it.

        Or start periodic work, made by `every`, which has no port. Returns what was given, or the Handler made of it.

        port overrides the handler's own. Before or after start. Raises CorelaneError: port in use, none given, the
        function cannot be compiled, or needs more stack than uthreads have.
        """
        if isinstance(handler, Periodic):
            if port is not None:
                raise CorelaneError("bind periodic work", f"it was given port {port}", "leave the port out")
            handler.start(self)
            self._bound.append(("", handler, 0))
            return handler
        if isinstance(handler, StreamHandler):
            return self._bind_stream(handler, port)
        made = as_handler(handler)
        check_port(port)
        number = port if port is not None else made.port
        if number is None:
            raise CorelaneError("bind a handler", "it has no port", "give one: bind(handler, port=9000)")
        prepared = made.prepare()
        if prepared.stack_bytes:
            from .batch_work.refuse import refuse_small_stack

            refuse_small_stack(f"bind a handler to UDP port {number}", prepared.stack_bytes, self.stack_bytes)
        self._bound.append(("UDP", made, number))
        self._bind(prepared, number)
        if made.name:
            self.name_function(prepared.pointer, made.name)
        return made

    @typed("name a function")
    def name_function(self, function: Any, name: str) -> None:
        """Say what a function is called that C calls by its address, for the error of a stop that it does not come back
        from. function: the address. Functions that are bound have their names."""
        rc = lib.cl_runtime_name(self.ptr, ffi.cast("void *", function), os.fsencode(name))
        check(rc, f"name a function {name}")

    @typed("set how requests wait")
    def set_batching(self, port: int, *, batch: int | None = None, **how: Any) -> None:
        """Have the handler with `batch` on that UDP port get its requests in another way from now on.

        batch and how: the options of `udp`; what is left out is as it is there. What waits is handled now. Raises
        CorelaneError for what cannot be.
        """
        made = batching_of(batch, **how)
        if made is None:
            raise CorelaneError("handle requests in batches", "batch is missing", "say how many at a time: batch=32")
        err = ffi.new("char[256]")
        rc = lib.cl_runtime_set_batching(self.ptr, port, as_c(made), err)
        if rc == -errno.ENOENT:
            raise _no_batches("set how requests wait", port)
        check(rc, f"set how requests of UDP port {port} wait", err)

    @typed("tell what batches take")
    def batch_profile(self, port: int) -> BatchProfile:
        """What was measured of the handler with `batch` on that UDP port. Raises CorelaneError if there is none."""
        out = ffi.new("struct cl_udp_batch_profile *")
        rc = lib.cl_runtime_batch_profile(self.ptr, port, out)
        if rc:
            raise _no_batches("tell what batches take", port)
        counts = int(out.batches), int(out.waiting)
        return BatchProfile(*counts, out.fixed_us, out.each_us, out.spread_us, tuple(out.takes_us))

    def _bind_stream(self, handler: StreamHandler, port: int | None) -> StreamHandler:
        check_port(port, "TCP")
        number = port if port is not None else handler.port
        if number is None:
            raise CorelaneError("bind a handler", "it has no port", "give one: bind(handler, port=7000)")
        self._bound.append(("TCP", handler, number))
        handler.bind(self, number)
        return handler

    def _bind(self, prepared: Prepared, number: int) -> None:
        if prepared.types is not None:
            err = ffi.new("char[256]")
            rc = lib.cl_runtime_bind_udp_typed(self.ptr, number, prepared.pointer, prepared.arg, prepared.types, err)
            check(rc, f"bind a handler to UDP port {number}", err)
            return
        if prepared.batching is not None:
            err = ffi.new("char[256]")
            rc = lib.cl_runtime_bind_udp_batched(
                self.ptr, number, prepared.pointer, prepared.arg, prepared.kind == "foreign", prepared.batching, err
            )
            check(rc, f"bind a handler to UDP port {number}", err)
            return
        bind = {
            "request": lib.cl_runtime_bind_udp_ordered if prepared.ordered else lib.cl_runtime_bind_udp,
            "burst": lib.cl_runtime_bind_udp_burst,
            "foreign": lib.cl_runtime_bind_udp_foreign,
        }[prepared.kind]
        check(bind(self.ptr, number, prepared.pointer, prepared.arg), f"bind a handler to UDP port {number}")

    def _ports_of(self, kind: str) -> Iterator[int]:
        return (port for of, _, port in self._bound if of == kind)

    def _periodic(self) -> Iterator[Periodic]:
        return (work for _, work, _ in self._bound if isinstance(work, Periodic))
