"""The worked example of docs/examples.md, a rate limiter: as a numba handler, and on our loop. One service, the files
of examples/ themselves, asked the same over the same kind of link.

The hits of all names are used up before, so that each question has one answer, which the client compares: half of them
are hits, which are refused, half ask what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

from ...libos import Runtime
from ..harness import usage
from ..harness.load import Load
from ..harness.openloop import Measure
from ..harness.rig import SERVER_IP, linked, started
from .places import asking
from .server import BACKLOG
from .thread import Looping

NUMBA, OURS = "limiter, numba handler, memory NIC", "limiter, our loop, memory NIC"
PORT = 7000
_FOLDER = Path(__file__).resolve().parents[2] / "examples"
_NAMES = [b"client-%04d" % i for i in range(900)]  # of the 1 000 that it remembers
_SCRIPT = [line for name in _NAMES for line in ((b"hit %s\n" % name, b"full\n"), (b"left %s\n" % name, b"ok 0\n"))]


def missing() -> str:
    """Why it cannot be measured; "" if it can."""
    return "" if _FOLDER.is_dir() else f"there is no {_FOLDER}: run it from a source tree"


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"corelane_example_{name}", _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def numba_on_memory(cores: tuple[int, int]) -> Iterator[Measure]:
    """The compiled one is on cores[1], the client on cores[0], in a closed loop."""
    example = _example("numba_limiter")
    example.state[example.HITS] = 1
    for name in _NAMES:
        example.used.put(name, 1 << 32)  # one hit in window 0

    def bind(runtime: Runtime) -> None:
        runtime.bind(example.limiter, PORT)

    with (
        linked() as (client_end, server_end),
        started(server_end, cores[1], bind) as (_, tids),
        asking(client_end, server_end.mac, cores[0], PORT, script=_SCRIPT) as load,
    ):
        yield Load(load, lambda: usage.of_threads(tids).busy_s).measure


@contextlib.asynccontextmanager
async def _serving() -> AsyncIterator[None]:
    example = _example("asyncio_limiter")
    limiter = example.Limiter(1)
    for name in _NAMES:
        limiter.answer(b"hit " + name)
    made = asyncio.get_running_loop().create_server(lambda: example.Lines(limiter), SERVER_IP, PORT, backlog=BACKLOG)
    async with await made:
        yield


@contextlib.contextmanager
def loop_on_memory(cores: tuple[int, int]) -> Iterator[Measure]:
    """The one on asyncio, by our loop."""
    with (
        linked() as (client_end, server_end),
        Looping(server_end, _serving, cpu=cores[1]) as looping,
        asking(client_end, server_end.mac, cores[0], PORT, script=_SCRIPT) as load,
    ):
        yield Load(load, looping.busy_s).measure


ARMS = {NUMBA: numba_on_memory, OURS: loop_on_memory}
