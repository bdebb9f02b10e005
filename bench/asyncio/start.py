"""From nothing to the first answer: `corelane up` on a tap, an application whose handler numba has compiled before, and
a socket of Linux' on the other side of the tap.

The application is started when the iokernel says that it is up, and asked when it says that it serves. Beside: both
started at once, and the first start of all, which compiles the handler.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from ...drivers.linux import netns
from ...runtime.errors import CorelaneError
from ..harness import rest
from ..harness.child import told
from ..harness.session import Session

FIGURE = "start.cold_s"
FIGURES = (FIGURE,)
BEHIND, AT_ONCE = "up, then run", "up and run at once"
ADDRESS, PORT = "10.77.0.9", 9000
ROUNDS = 5
AGAIN_S, PATIENCE_S = 0.002, 30.0
SERVICE = """
from corelane import libos


@libos.udp(port=9000)
def echo(request, reply):
    n = len(request)
    reply[:n] = request
    return n
"""


class Starts:
    """A folder with the application and what is kept of its compilation, and a namespace to start in. Needs root."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
        self._space = stack.enter_context(netns.namespace("start"))
        Path(self._folder, "service.py").write_text(SERVICE)
        script = Path(sys.executable).with_name("corelane")  # what a user calls; it starts sooner than -m
        self._corelane = [str(script)] if script.exists() else [sys.executable, "-m", "corelane.cli.main"]
        keep = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._env = keep | {"CORELANE_CACHE_DIR": str(Path(self._folder, "cache"))}

    def start(self, *, at_once: bool) -> float:
        """Seconds until the first answer. Both processes have ended when it returns."""
        rest.demand("a start")
        path = str(Path(self._folder, "io.sock"))
        up = ["up", "--socket", path, "--nic", "tap:cl0", "--set", f"apps.service.ip={ADDRESS}", "--json"]
        run = ["run", "service:echo", "--socket", path, "--name", "service", "--json", "--with-parent"]
        run += ["--wait", f"{PATIENCE_S:.0f}"]
        with self._space.entered(), contextlib.ExitStack() as stack:
            begin = time.monotonic()
            stack.enter_context(self._command(up, "" if at_once else '"iokernel"'))
            stack.enter_context(self._command(run, '"serving"'))
            ask(ADDRESS, PORT)
            return time.monotonic() - begin

    def _command(self, words: list[str], until: str) -> contextlib.AbstractContextManager[int]:
        return told([*self._corelane, *words], until, env=self._env, cwd=self._folder)


def measure(session: Session, seconds: float) -> None:
    """Both ways by turns. They take what they take: as many rounds as `seconds` has room for, and ROUNDS at most."""
    if why := netns.missing():
        for arm in (BEHIND, AT_ONCE):
            session.skip(arm, why)
        return
    with contextlib.ExitStack() as stack:
        starts = Starts(stack)
        session.say("the first start of all, which compiles the handler")
        first_s = starts.start(at_once=False)
        arms = {BEHIND: partial(starts.start, at_once=False), AT_ONCE: partial(starts.start, at_once=True)}
        begin = time.monotonic()
        starts.start(at_once=False)
        rounds = int(seconds / (2 * (time.monotonic() - begin)))
        found = session.interleave(arms, max(1, min(rounds, ROUNDS)))
    for name, took in found.items():
        session.arm(name, n=len(took), start_s=statistics.median(took), runs=took)
    beside = {"both at once": statistics.median(found[AT_ONCE]), "the first of all, which compiles": first_s}
    session.figure(FIGURE, statistics.median(found[BEHIND]), runs=found[BEHIND], beside=beside)


def ask(address: str, port: int) -> None:
    """Ask until somebody answers. Raises CorelaneError if nobody does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(AGAIN_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                asking.sendto(b"?", (address, port))
                if asking.recv(16) == b"?":
                    return
    raise CorelaneError(f"ask {address}:{port}", f"nobody answered for {PATIENCE_S:.0f} s")
