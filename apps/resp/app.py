"""The resp application: `corelane run resp`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from ...libos.storage.log.log import Log
from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from ..registry import App, option
from .aof import Recovered, open_log, recover
from .engine import Engine


@dataclass(frozen=True)
class Options:
    """What `corelane run resp` takes."""

    port: int = option(6379, "TCP port")
    memory_bytes: int = option(64 << 20, "all that values, keys, replies and connections may take")
    policy: str = option("noeviction", "what makes room: maxmemory-policy by Redis' names")
    password: str = option("", "what AUTH asks for")
    log: str = option("", "file or device of the log that makes writes durable; a file is made if there is none")
    log_mib: int = option(0, "size of a log that is made, in MiB; 0: four times memory_bytes")
    in_call: bool = option(True, "the kthread waits in the kernel for writes to the log, if it is alone")
    backlog: int = option(511, "connections that may be half open; more are answered without a trace")


class RespService:
    """An engine and its port on a runtime. Public attributes: engine, recovered (of its log; None: it has none)."""

    def __init__(self, runtime: Any, options: Options, log: Log | None = None) -> None:
        """log: an open one, which is closed with the service, in place of the options'."""
        if not 0 < options.port < 65536:
            raise CorelaneError("run resp", f"port {options.port}", "a port from 1 to 65535")
        if options.backlog < 1:
            raise CorelaneError("run resp", f"backlog {options.backlog}", "1 or more")
        self._service = ffi.NULL
        self._port = options.port
        self.engine = Engine(options.memory_bytes, policy=options.policy, password=options.password)
        self._log = log
        self.recovered: Recovered | None = None
        try:
            self._serve(runtime, options)
        except BaseException:
            self.engine.close()
            if self._log is not None:
                with contextlib.suppress(CorelaneError):  # lent to a runtime that never started
                    self._log.close()
            raise

    def _serve(self, runtime: Any, options: Options) -> None:
        shared = ffi.NULL
        if options.log and self._log is None:
            self._log = open_log(options.log, options.log_mib, options.memory_bytes)
        if self._log is not None:
            self.recovered = recover(self.engine, self._log)
            shared = ffi.cast("struct cl_log_shared *", runtime.share(self._log).address)
        out, err = ffi.new("struct cl_resp_service **"), ffi.new("char[256]")
        check(
            lib.cl_resp_serve(
                runtime.ptr, self.engine.ptr, options.port, options.backlog, shared, options.in_call, out, err
            ),
            "run resp",
            err,
        )
        self._service = out[0]

    @property
    def ports(self) -> tuple[int, ...]:
        """UDP ports: none."""
        return ()

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """Its TCP port."""
        return (self._port,)

    def stats(self) -> dict[str, int]:
        """Counters of its port (struct cl_resp_port), and memory in use."""
        port = lib.cl_resp_service_port(self._service)
        used, limit = self.engine.used()
        counts = {name: int(getattr(port, name)) for name, _ in ffi.typeof(port[0]).fields}
        writer = lib.cl_resp_service_writer(self._service)
        if writer != ffi.NULL:
            counts |= {f"log_{name}": int(getattr(writer, name)) for name, _ in ffi.typeof(writer[0]).fields}
        return {**counts, "memory_used": used, "memory_limit": limit}

    def close(self) -> None:
        """Free the engine. The runtime must have stopped. Closing twice is allowed."""
        service, self._service = self._service, ffi.NULL
        lib.cl_resp_service_delete(service)
        self.engine.close()
        if self._log is not None:
            self._log.close()


def setup(runtime: Any, options: Options) -> RespService:
    """Make an engine and serve it on a libos Runtime that has not started."""
    return RespService(runtime, options)


APP = App("resp", "typed values: Redis' protocols, RESP2 and RESP3, over TCP, in bounded memory", Options, setup)
