"""Built-in applications by name: what `corelane run NAME` offers.

An application is an `App`: a name, one line of help, a dataclass of options (a field's default is the option's, and its
metadata has a "help" line), and `setup(runtime, options)`, which binds its handlers to a libos Runtime that has not
started yet and returns a `Service`. The runtime must be stopped before the service is closed: handlers point into it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ..runtime.errors import CorelaneError

# Name -> module whose `APP` it is. Modules are imported when asked for: `corelane --help` needs none of them.
_MODULES = {
    "batch": "batch",
    "echo": "echo",
    "http": "http.app",
    "kv": "kv.app",
    "raft-kv": "raft.service.app",
    "raft-resp": "raft.service.resp_app",
    "resp": "resp.app",
    "spin": "spin",
}


class Service(Protocol):
    """What an application's setup leaves behind: it owns the memory that the handlers work on."""

    @property
    def ports(self) -> tuple[int, ...]:
        """UDP ports that it answers on. One that answers on TCP has `tcp_ports`, too (`tcp_ports_of`)."""

    def stats(self) -> dict[str, int]:
        """The application's own counters."""

    def close(self) -> None:
        """Free everything. The runtime must have stopped."""


def tcp_ports_of(service: Service) -> tuple[int, ...]:
    """TCP ports that a service answers on; most have none."""
    return tuple(getattr(service, "tcp_ports", ()))


@runtime_checkable
class Work(Protocol):
    """A service that works by itself rather than on requests."""

    def progress(self) -> tuple[str, dict[str, Any]]:
        """What was done since the last call: a line for people, and numbers."""

    def end(self) -> None:
        """Have it come to an end; before the runtime is stopped."""


@runtime_checkable
class Drains(Protocol):
    """A service whose peers would miss what a stop cuts off."""

    def drain(self) -> None:
        """Take nothing new, and wait a while for what is under way; before the runtime is stopped."""


@dataclasses.dataclass(frozen=True)
class App:
    """A built-in application. options: a dataclass type whose fields say their help in their metadata. kind: "latency"
    or "batch", what it is to an iokernel that moves cores unless its user says otherwise."""

    name: str
    help: str
    options: type[Any]
    setup: Callable[[Any, Any], Service]
    kind: str = "latency"


def option(default: Any, help: str) -> Any:
    """A field of an options dataclass, with its line of help."""
    return dataclasses.field(default=default, metadata={"help": help})


def options_help(name: str) -> str:
    """The options of an application, a paragraph each, with their defaults."""
    import textwrap

    out = []
    for field in dataclasses.fields(load(name).options):
        default = "yes" if field.default is True else "no" if field.default is False else field.default
        text = field.metadata.get("help", "") + ("" if default == "" else f" (default {default})")
        out.append(textwrap.fill(f"{field.name:20}  {text}", 79, initial_indent="  ", subsequent_indent=" " * 24))
    return "\n".join(out)


def names() -> list[str]:
    """The built-in applications' names."""
    return sorted(_MODULES)


def load(name: str) -> App:
    """The application of that name; raises CorelaneError, naming those that exist, if there is none."""
    module = _MODULES.get(name)
    if module is None:
        raise CorelaneError(
            f"run {name}", "there is no built-in application of that name", f"one of: {', '.join(names())}"
        )
    app: App = importlib.import_module(f".{module}", __package__).APP
    return app
