"""The http application: `corelane run http --root DIR`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...runtime.errors import CorelaneError, check
from ...runtime.imports import user_module
from .._native import ffi, lib
from ..registry import App, option
from .handlers import Route

_LOOK_S = 0.02  # between two looks at whether all connections have ended


@dataclass(frozen=True)
class Options:
    """What `corelane run http` takes. Times pass in ticks: each may take tick_ms longer."""

    port: int = option(8080, "TCP port")
    root: str = option("", "folder whose files are served")
    handlers: str = option("", "module:name[,name...] of handlers (apps/http/handlers.py), before files")
    tls_port: int = option(8443, "TCP port with TLS, if there is a certificate")
    tls_cert: str = option("", "PEM file[,file...]: certificates, each with those that it was signed with")
    tls_key: str = option("", "PEM file[,file...]: the certificates' keys, in their order, without a passphrase")
    cache_bytes: int = option(256 << 20, "memory of files")
    memory_bytes: int = option(256 << 20, "memory of requests and answers under way, of all connections together")
    connections: int = option(65536, "at one time; more are reset")
    fresh_ms: int = option(1000, "how old what is answered from memory may be")
    target_most: int = option(8192, "longest target of a request, in bytes (414)")
    head_most: int = option(16384, "longest head of a request, in bytes, up to 65535 (431)")
    body_most: int = option(1 << 20, "longest body of a request, in bytes (413)")
    tick_ms: int = option(1000, "how often a connection is looked at")
    keep_alive_ms: int = option(75000, "how long a connection may be without a request")
    head_ms: int = option(10000, "how long the head of a request may take (408)")
    window_ms: int = option(20000, "bodies and answers: in each such time ...")
    window_bytes: int = option(10240, "... so many bytes have to go through, else the connection ends")
    linger_ms: int = option(2000, "how long what comes after an error is read and dropped")
    requests: int = option(0, "of a connection, which then ends (0: any number)")
    symlinks: bool = option(False, "follow links that stay below the root")
    hidden: bool = option(False, "serve names that begin with a dot")
    drain_s: float = option(5.0, "how long a stop waits for answers that are under way")


def _options_of(options: Options) -> Any:
    """The `struct cl_http_options`."""
    made = ffi.new("struct cl_http_options *")
    lib.cl_http_options_init(made)
    for field in fields(options):
        if hasattr(made, field.name):
            try:
                setattr(made, field.name, getattr(options, field.name))
            except OverflowError:
                value = getattr(options, field.name)
                raise CorelaneError("run http", f"{field.name} is {value}", "give a number from 0 on") from None
    return made


def _named(text: str) -> list[Route]:
    """The handlers that `module:name,name` names."""
    what = f"run http with the handlers {text}"
    module_name, _, names = text.partition(":")
    if not module_name or not names:
        raise CorelaneError(what, "it is not of the form module:name[,name...]", "as in shop:total,hello")
    module = user_module(what, module_name)
    found: list[Route] = []
    for name in names.split(","):
        made = getattr(module, name, None)
        if not isinstance(made, Route):
            raise CorelaneError(what, f"{name} is no handler", "decorate it with @route(...)")
        found.append(made)
    return found


def _c_text(text: str) -> Any:
    return ffi.new("char[]", text.encode(errors="surrogateescape"))


def _check(options: Options) -> None:
    for name in ("port", "tls_port"):
        number = getattr(options, name)
        if not 0 <= number < 65536:
            raise CorelaneError("run http", f"{name} {number}", "a port from 1 to 65535, or 0 for none")
    if bool(options.tls_cert) != bool(options.tls_key):
        raise CorelaneError("run http", "a certificate and its key go together", "give both --tls-cert and --tls-key")
    if options.tls_cert.count(",") != options.tls_key.count(","):
        raise CorelaneError("run http", "there are not as many keys as certificates", "give a key for each, in order")
    if not options.port and not (options.tls_port and options.tls_cert):
        raise CorelaneError("run http", "it has no port", "give --port, or --tls-port and a certificate")


class HttpService:
    """A server on a runtime. routes: handlers besides those that the options name."""

    def __init__(self, runtime: Any, options: Options, routes: Sequence[Route] = ()) -> None:
        _check(options)
        self._routes = [*routes, *(_named(options.handlers) if options.handlers else ())]
        if not options.root and not self._routes:
            raise CorelaneError("run http", "it has nothing to serve", "give --root DIR, or --handlers MODULE:NAME")
        info = ffi.new("struct cl_runtime_info *")
        lib.cl_runtime_info(runtime.ptr, info)
        self._drain_s = options.drain_s
        self._ports = tuple(p for p in (options.port, options.tls_port if options.tls_cert else 0) if p)
        out, err = ffi.new("struct cl_http_service **"), ffi.new("char[256]")
        root = _c_text(options.root) if options.root else ffi.NULL
        check(lib.cl_http_service_new(_options_of(options), root, info.kthreads, out, err), "run http", err)
        self._service = out[0]
        try:
            self._begin(runtime, options, err)
        except BaseException:
            self.close()
            raise

    def _begin(self, runtime: Any, options: Options, err: Any) -> None:
        for route in self._routes:
            route.add_to(self._service, runtime)
        if options.tls_cert:
            for certificate, key in zip(options.tls_cert.split(","), options.tls_key.split(","), strict=True):
                files = _c_text(certificate), _c_text(key)
                check(lib.cl_http_set_certificate(self._service, *files, err), "run http", err)
        tls_port = options.tls_port if options.tls_cert else 0
        check(lib.cl_http_serve(self._service, runtime.ptr, options.port, tls_port, err), "run http", err)

    @property
    def ports(self) -> tuple[int, ...]:
        """UDP ports: none."""
        return ()

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """Its TCP ports; the last one is that with TLS, if there is a certificate."""
        return self._ports

    def stats(self) -> dict[str, int]:
        """Counters (struct cl_http_counts), what is in memory (struct cl_http_files_usage, as files_NAME), and how many
        connections are open now."""
        counts, usage = ffi.new("struct cl_http_counts *"), ffi.new("struct cl_http_files_usage *")
        lib.cl_http_sum_counts(self._service, counts)
        lib.cl_http_files_usage(self._service, usage)
        out = {name: int(getattr(counts, name)) for name in dir(counts)}
        out |= {f"files_{name}": int(getattr(usage, name)) for name in dir(usage)}
        out["alive"] = int(lib.cl_http_alive(self._service))
        out["used_bytes"] = int(lib.cl_http_used_bytes(self._service))
        return out

    def begin_drain(self) -> None:
        """Take no more connections and requests: idle ones end at their next tick, others with their answer."""
        lib.cl_http_drain(self._service)

    def drain(self) -> None:
        """The same, and wait until all have ended, drain_s at most. The runtime runs meanwhile."""
        self.begin_drain()
        end = time.monotonic() + self._drain_s
        while lib.cl_http_alive(self._service) and time.monotonic() < end:
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """Free it. The runtime must have stopped. Closing twice is allowed."""
        service, self._service = self._service, ffi.NULL
        lib.cl_http_service_delete(service)


def setup(runtime: Any, options: Options) -> HttpService:
    """Serve on a libos Runtime that has not started."""
    return HttpService(runtime, options)


APP = App("http", "HTTP/1.1 server over TCP and TLS: files, and handlers", Options, setup)
