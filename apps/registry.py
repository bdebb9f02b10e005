"""Built-in applications by name: what `corelane run NAME` offers.

An application is an `App`: a name, one line of help, a dataclass of options (a field's default is the option's, and its
metadata has a "help" line), and `setup(runtime, options)`, which binds its handlers to a libos Runtime that has not
started yet and returns a `Service`. The runtime must be stopped before the service is closed: handlers point into it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Protocol

from ..runtime.errors import CorelaneError

# Name -> module whose `APP` it is. Modules are imported when asked for: `corelane --help` needs none of them.
_MODULES = {"echo": "echo", "kv": "kv.app", "spin": "spin"}


class Service(Protocol):
    """What an application's setup leaves behind: it owns the memory that the handlers work on."""

    @property
    def ports(self) -> tuple[int, ...]:
        """UDP ports that it answers on."""

    def stats(self) -> dict[str, int]:
        """The application's own counters."""

    def close(self) -> None:
        """Free everything. The runtime must have stopped."""


@dataclasses.dataclass(frozen=True)
class App:
    """A built-in application. options: a dataclass type whose fields say their help in their metadata."""

    name: str
    help: str
    options: type[Any]
    setup: Callable[[Any, Any], Service]


def option(default: Any, help: str) -> Any:
    """A field of an options dataclass, with its line of help."""
    return dataclasses.field(default=default, metadata={"help": help})


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
