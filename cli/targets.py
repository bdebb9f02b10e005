"""What `corelane run TARGET` can run: a built-in application, module:name,..., or a compiled .so.

Each becomes a Target: `setup(runtime)` binds its handlers to a runtime that has not started. It returns a service,
to be closed after the runtime has stopped. A program for asyncio has a `main` instead (coroutines.py).
"""

from __future__ import annotations

import dataclasses
import errno
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..runtime import imports
from ..runtime.errors import CorelaneError, check
from .usage import WrongUsage

if TYPE_CHECKING:
    from ..libos import Handler, Periodic, Runtime, StreamHandler
    from .coroutines import Main


class Service(Protocol):
    """What runs: its UDP ports and its own counters."""

    @property
    def ports(self) -> tuple[int, ...]: ...

    def stats(self) -> dict[str, int]: ...

    def close(self) -> None: ...


@dataclasses.dataclass
class Target:
    """name: what the application is called unless --name says otherwise. kind: "latency" or "batch". port: the first
    that its handlers will serve; None: they serve none, or it is a built-in one, which knows. main: a coroutine
    function, which is run on a loop of the runtime's; there is nothing to set up then."""

    name: str
    setup: Callable[[Runtime], Service]
    kind: str = "latency"
    port: int | None = None
    main: Main | None = None


@dataclasses.dataclass
class Bound:
    """A service that owns nothing but its handlers."""

    ports: tuple[int, ...]
    handlers: tuple[Any, ...] = ()
    tcp_ports: tuple[int, ...] = ()

    def stats(self) -> dict[str, int]:
        """The counters of Python callables and of periodic work; compiled handlers have none of their own."""
        out: dict[str, int] = {}
        for handler in self.handlers:
            for name, value in handler.counters.items():
                out[name] = out.get(name, 0) + value
        return out

    def close(self) -> None:
        """Nothing to free."""


def resolve(text: str, words: Sequence[str], *, port: int | None, plain: bool) -> Target:
    """The target that a command line names. CorelaneError says what it could have been.

    words: "key=value" options. port: overrides a handler's own. plain: do not compile Python functions.
    """
    if text.endswith(".so") or "/" in text:
        return _compiled(Path(text), words, port)
    if ":" in text:
        return _python(text, words, port, plain)
    return _built_in(text, words, port)


def pairs(words: Sequence[str]) -> dict[str, str]:
    """{"key": "value"} of "key=value" words."""
    out = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise WrongUsage(f"--option {word}", "it is not of the form key=value", "as in --option port=9000")
        out[key] = value
    return out


def _convert(kind: object, text: str, what: str) -> Any:
    """A value of a dataclass field's type from text."""
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    try:
        if name == "bool":
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if name == "int":
            return int(text.replace("_", ""), 0)
        if name == "float":
            return float(text)
    except (ValueError, KeyError):
        raise WrongUsage(what, f"{text!r} is no {name}", f"give a value of type {name}") from None
    return text


def _built_in(name: str, words: Sequence[str], port: int | None) -> Target:
    from ..apps import registry

    try:
        app = registry.load(name)
    except CorelaneError as e:
        hint = f"{e.hint}; or module:handler, or a file ending in .so"
        if Path(f"{name}.py").is_file():
            hint = f"of {name}.py here name a handler: {name}:HANDLER"
        elif Path(f"{name}.so").is_file():
            hint = f"of {name}.so here name the file: ./{name}.so"
        raise WrongUsage(e.what, e.why, hint) from e
    fields = {f.name: f for f in dataclasses.fields(app.options)}
    given = pairs(words)
    if port is not None:
        given["port"] = str(port)
    values = {}
    for key, text in given.items():
        if key not in fields:
            raise WrongUsage(f"--option {key}", f"{name} has no such option", f"one of: {', '.join(fields)}")
        values[key] = _convert(fields[key].type, text, f"--option {key}={text}")
    options = app.options(**values)

    def setup(runtime: Runtime) -> Service:
        with _options_are_wrong(given):
            return app.setup(runtime, options)

    return Target(name, setup, app.kind)


@contextmanager
def _options_are_wrong(given: Mapping[str, str]) -> Iterator[None]:
    """A value that the application refuses is a word of the command line, if options were given."""
    try:
        yield
    except CorelaneError as error:
        if not given or error.errno not in (0, errno.EINVAL, errno.ERANGE):
            raise
        words = [f"{key}={text}" for key, text in given.items()]
        named = any(word in error.what for word in words)
        what = error.what if named else f"--option {' '.join(words)}: {error.what}"
        raise WrongUsage(what, error.why, error.hint, error.errno) from error


def _python(text: str, words: Sequence[str], port: int | None, plain: bool) -> Target:
    from ..libos import Handler, StreamHandler

    module_name, _, attributes = text.partition(":")
    if not module_name or not all(attributes.split(",")):
        raise WrongUsage(f"run {text}", "it lacks a name", "write it as module:function, or module:one,two")
    if words:
        raise WrongUsage(f"run {text}", "a Python handler takes no --option", "let it read its environment")
    module = imports.user_module(f"run {text}", module_name)
    names = attributes.split(",")
    if inspect.iscoroutinefunction(main := getattr(module, names[0], None)):
        return _coroutine(text, names, main, port)
    bound = {name: _made(text, module, name, plain) for name in names}
    handlers = {name: made for name, made in bound.items() if isinstance(made, Handler | StreamHandler)}
    if port is not None and len(handlers) != 1:
        raise WrongUsage(f"run {text}", f"it has {len(handlers)} handlers, and --port gives one port")
    ports: dict[str, list[int]] = {"UDP": [], "TCP": []}
    for name, handler in handlers.items():
        kind = "UDP" if isinstance(handler, Handler) else "TCP"
        if (number := port or handler.port) is None:
            hint = f"decorate it with @libos.{kind.lower()}(port=...), or give --port"
            raise WrongUsage(f"run {text}", f"{name} names no {kind} port", hint)
        ports[kind].append(number)

    def setup(runtime: Runtime) -> Service:
        for made in bound.values():
            runtime.bind(made, port if isinstance(made, Handler | StreamHandler) else None)
        return Bound(tuple(ports["UDP"]), tuple(bound.values()), tuple(ports["TCP"]))

    return Target(names[0], setup, port=next(iter(ports["UDP"]), None))


def _coroutine(text: str, names: Sequence[str], main: Main, port: int | None) -> Target:
    if len(names) > 1:
        raise WrongUsage(f"run {text}", f"{names[0]} is a coroutine function, which runs alone", "name it alone")
    if port is not None:
        raise WrongUsage(f"run {text}", "a coroutine function takes no --port", "let it read its environment")

    def setup(_: Runtime) -> Service:
        return Bound(())

    return Target(names[0], setup, main=main)


def _made(text: str, module: Any, name: str, plain: bool) -> Handler | StreamHandler | Periodic:
    """A handler, or periodic work, by its name in a module."""
    from ..libos import Handler, Periodic, StreamHandler, tcp, udp

    found = getattr(module, name, None)
    if found is None:
        names = [n for n in vars(module) if not n.startswith("_")]
        hidden = imports.hidden(module.__name__, getattr(module, "__file__", None))
        why = f"{module.__name__} has no {name!r}"
        raise CorelaneError(f"run {text}", why, f"{hidden}it has: {', '.join(names)}")
    if not callable(found):
        raise CorelaneError(f"run {text}", f"{name} is a {type(found).__name__}", "name a function or a handler")
    if not isinstance(found, Handler | StreamHandler | Periodic):
        return udp(compiled=not plain)(found)
    if not (plain and found.compiled):
        return found
    if isinstance(found, Periodic):
        return Periodic(found.function, found.ms, found.state, compiled=False)
    again = udp if isinstance(found, Handler) else tcp
    return again(found.port, compiled=False)(found.function)


def _compiled(path: Path, words: Sequence[str], port: int | None) -> Target:
    from . import config, elf, service

    if service.is_service(str(path)):
        if words:
            raise WrongUsage(f"run {path}", "a compiled service takes no --option", "compile it with other values")
        return _service(path, port)
    exports = elf.inspect(path, config.library())
    handlers = [e for e in exports if e.kind != "setup"]
    if port is not None and len(handlers) != 1:
        raise WrongUsage(f"run {path}", f"it has {len(handlers)} handlers, and --port gives one port")
    pairs(words)  # refuse malformed options before anything is loaded
    ports = tuple(e.port if port is None else port for e in handlers)

    def setup(runtime: Runtime) -> Service:
        from ..libos import c_handler
        from ..libos._native import ffi

        object_ = _load(path)
        arg = ffi.new("void **")
        keep = [ffi.new("char[]", os.fsencode(word)) for word in words]
        for export in exports:
            if export.kind == "setup":
                function = ffi.cast("int (*)(void *, char **, void **, char *)", object_.address(export.symbol))
                err = ffi.new("char[256]")
                rc = function(runtime.ptr, ffi.new("char *[]", [*keep, ffi.NULL]), arg, err)
                if rc < 0:
                    raise CorelaneError(f"run {path}", ffi.string(err).decode(errors="replace") or f"error {-rc}")
        made = tuple(
            c_handler(object_.address(e.symbol), number, burst=e.kind == "burst", arg=arg[0] or None)
            for e, number in zip(handlers, ports, strict=True)
        )
        for handler in made:
            runtime.bind(handler)
        return Loaded(ports, made, keep=(object_, keep))

    return Target(path.stem[:31], setup, port=ports[0] if ports else None)


def _service(path: Path, port: int | None) -> Target:
    """A service in this process. CorelaneError says why it cannot be loaded."""
    from ..libos._native import ffi, lib

    out, err = ffi.new("const struct cl_service **"), ffi.new("char[256]")
    check(lib.cl_service_open(os.fsencode(path), out, err), f"run {path}", err)
    service = out[0]
    works = [service.work[i] for i in range(service.n_work)]

    def ports(kind: int) -> tuple[int, ...]:
        return tuple(port or int(work.port) for work in works if work.kind == kind)

    udp, http = ports(lib.CL_SERVICE_UDP), ports(lib.CL_SERVICE_HTTP)[:1]
    tcp = ports(lib.CL_SERVICE_TCP) + http
    if port is not None and len(udp) + len(tcp) != 1:
        raise WrongUsage(f"run {path}", f"it has {len(udp) + len(tcp)} handlers, and --port gives one port")

    def setup(runtime: Runtime) -> Bound:
        made = ffi.new("struct cl_service_bound **")
        rc = lib.cl_service_bind(runtime.ptr, service, port or 0, made, err)
        kind = CompiledHttp if http else CompiledService
        bound = kind(udp, (), tcp, pointer=made[0])
        if rc:
            bound.close()
        check(rc, f"run {path}", err)
        return bound

    name = ffi.string(service.name).decode(errors="replace")
    return Target(name, setup, port=next(iter(udp), None))


@dataclasses.dataclass
class CompiledService(Bound):
    """What a runtime was given of a service that was compiled ahead of time. pointer: `struct cl_service_bound *`."""

    pointer: Any = None

    def stats(self) -> dict[str, int]:
        """The counters of its HTTP server, if it has one."""
        from ..libos._native import ffi, lib

        out = ffi.new(f"struct cl_counter[{_COUNTERS}]")
        n = lib.cl_service_counters(self.pointer, out, _COUNTERS)
        return {ffi.string(out[i].name).decode(): int(out[i].value) for i in range(n)}

    def close(self) -> None:
        """Free it. The runtime must have been closed."""
        from ..libos._native import ffi, lib

        pointer, self.pointer = self.pointer, ffi.NULL
        lib.cl_service_unbind(pointer)


@dataclasses.dataclass
class CompiledHttp(CompiledService):
    """One that has connections which end with an answer."""

    def begin_drain(self) -> None:
        """Take no more connections and requests of HTTP."""
        from ..libos._native import lib

        lib.cl_service_drain(self.pointer)

    def drain(self) -> None:
        """The same, and wait a while until its connections have ended. The runtime runs meanwhile."""
        from ..libos._native import lib

        self.begin_drain()
        end = time.monotonic() + _DRAIN_S
        while lib.cl_service_alive(self.pointer) and time.monotonic() < end:
            time.sleep(0.02)


_COUNTERS = 64
_DRAIN_S = 5.0


@dataclasses.dataclass
class Loaded(Bound):
    """Handlers of a shared object, and what must stay loaded with them."""

    keep: tuple[object, ...] = ()


class _SharedObject:
    """A loaded shared object. It is never unloaded: its code may be on a stack."""

    def __init__(self, path: Path) -> None:
        import ctypes

        self._ctypes = ctypes
        self._library = ctypes.CDLL(str(path.resolve()))

    def address(self, symbol: str) -> int:
        """Address of an exported function."""
        value = self._ctypes.cast(getattr(self._library, symbol), self._ctypes.c_void_p).value
        assert value is not None
        return value


def _load(path: Path) -> _SharedObject:
    try:
        return _SharedObject(path)
    except OSError as e:
        raise CorelaneError(f"load {path}", str(e), "see what the linker misses: ldd") from e
