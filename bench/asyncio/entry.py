"""The floor under every loop that runs protocols in Python: what a message costs the interpreter itself."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sysconfig
import time
from pathlib import Path
from typing import Any

from ...runtime.errors import SystemLimit
from ..baseline.compiled import build
from ..harness.affinity import started_on
from .server import Echo

PIECE = 10_000  # messages between two looks at the clock


def compile_into(folder: Path) -> Any:
    """The extension, compiled for this interpreter. Raises SystemLimit, saying what to install, if it cannot be."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        raise SystemLimit("compile python_entry", f"there is no {include}/Python.h: apt-get install python3-dev")
    path = build("python_entry", "CORELANE_PYTHON_ENTRY", [], folder, ["-shared", "-fPIC", f"-I{include}"])
    loader = importlib.machinery.ExtensionFileLoader("python_entry", str(path))
    spec = importlib.util.spec_from_loader("python_entry", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def message_ns(extension: Any, cpu: int, connections: int, message_bytes: int, seconds: float) -> float:
    """ns a message: a bytes object, `data_received` of the server's protocol, `write` of a transport that sends none.

    On `cpu`, for so long. connections: protocols that are called in turn, with a transport each.
    """
    protocols = [Echo() for _ in range(connections)]
    for protocol in protocols:
        protocol.connection_made(extension.Transport())
    received = tuple(protocol.data_received for protocol in protocols)
    with started_on([cpu]):
        extension.enter(received, message_bytes, PIECE)
        done, begin = 0, time.perf_counter()
        while (took := time.perf_counter() - begin) < seconds or not done:
            extension.enter(received, message_bytes, PIECE)
            done += PIECE
    return took / done * 1e9
