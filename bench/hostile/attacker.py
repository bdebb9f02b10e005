"""A process that attacks, or attaches in all honesty: `python -m corelane.bench.hostile.attacker SOCKET ...`.

Each line to its stdin is one request of JSON, and each is answered by one line:

    {"attack": NAME}                 answered when it is ready and has begun; it goes on until the next line, which is
    {"stop": true}                   answered by what it did: {"steps": n, counts by name} or {"error": text}
    {"busy": {...}}                  the same, but it is a stand-in that does nothing: arguments of busy.py
    {"attach": n, "prefix": text}    attaches n times: {"ms": [...]}, those refused as null, and {"refused": text}

It ends with its stdin. `Attacker` is the other end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from ...runtime.errors import CorelaneError
from ..harness.child import Child
from ..harness.unprivileged import become
from .attacks import ATTACKS, TIMEOUT_S, Attached, Steps, Target
from .busy import answerer, asker

MOST_S = 30.0  # an attack ends by itself
BEGIN_S, END_S = 2 * TIMEOUT_S, 4 * TIMEOUT_S  # that a step may take
HELD_BACK_S = 5.0
ATTACH_ALL_S = 60.0


class Attacker(Child):
    """The process, silent until it is told something. user: whose it is, which takes root; None: ours. cpu: where.
    partner: its end of the socket to another one, for `be_busy`; it does not block."""

    def __init__(
        self, path: str, cpu: int, user: int | None, victim_ip: str, uplink_mac: str, partner: socket.socket
    ) -> None:
        fd = partner.fileno()
        words = {"cpu": cpu, "user": -1 if user is None else user, "victim": victim_ip, "mac": uplink_mac}
        words["partner"] = fd
        arguments = [path, *(word for key, value in words.items() for word in (f"--{key}", str(value)))]
        super().__init__("corelane.bench.hostile.attacker", arguments, pass_fds=(fd,))

    def start(self, attack: str) -> None:
        """Begin to attack; `stop` must follow.

        What it closed of the attack before may count a while longer, if it is held back (iokernel/control/turns.py).
        """
        until = time.monotonic() + HELD_BACK_S
        while True:
            try:
                self._ask(BEGIN_S, attack=attack)
                return
            except CorelaneError as error:
                if "connections open already" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def be_busy(self, **how: float | str) -> None:
        """Begin to use a share of a CPU, as the arguments of busy.asker or busy.answerer say; `stop` must follow."""
        self._ask(BEGIN_S, busy=how)

    def stop(self) -> dict[str, int]:
        """End it. What it did."""
        return self._ask(END_S, stop=True)

    def attach(self, n: int, prefix: str) -> dict[str, Any]:
        """Attach n times, each as a new application; "ms": how long each took."""
        return self._ask(ATTACH_ALL_S, attach=n, prefix=prefix)

    def _ask(self, timeout_s: float, **request: object) -> dict[str, Any]:
        self.tell(json.dumps(request))
        return self.answer(timeout_s)


def _told() -> bool:
    """Whether the next line has come, or stdin has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _attack(steps: Steps, target: Target) -> None:
    """An attack and its two answers: what failed after it had begun is told when it is stopped."""
    target.counts.clear()
    end, n, error = time.monotonic() + MOST_S, 0, ""
    try:
        next(steps)
    except (CorelaneError, OSError) as failed:
        _say(error=str(failed))
        return
    _say(begun=True)
    try:
        with contextlib.closing(steps):
            while not _told() and time.monotonic() < end:
                next(steps)
                n += 1
    except (CorelaneError, OSError) as failed:
        error = str(failed)
    sys.stdin.readline()  # stop
    _say(**({"error": error} if error else {"steps": n, **target.counts}))


def _attach(target: Target, n: int, prefix: str) -> None:
    took: list[float | None] = []
    refused = ""
    for number in range(n):
        begin = time.monotonic()
        try:
            one = Attached(target.path, f"{prefix}-{number}")
        except CorelaneError as error:
            took.append(None)
            refused = str(error)
            continue
        took.append(1e3 * (time.monotonic() - begin))
        one.close()
    _say(ms=took, refused=refused)


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="attacks an iokernel when it is told to, until stdin ends")
    parser.add_argument("path")
    parser.add_argument("--cpu", type=int, required=True)
    parser.add_argument("--partner", type=int, required=True)
    parser.add_argument("--user", type=int, default=-1)
    parser.add_argument("--victim", default="0.0.0.0")
    parser.add_argument("--mac", default="00:00:00:00:00:00")
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, {options.cpu})
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.user >= 0:
        become(options.user)
    victim_ip = int.from_bytes(bytes(int(part) for part in options.victim.split(".")), "big")
    target = Target(options.path, victim_ip, bytes.fromhex(options.mac.replace(":", "")))
    _say(ready=True)
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "attach" in request:
            _attach(target, request["attach"], request["prefix"])
        elif "busy" in request:
            how, partner = request["busy"], socket.socket(fileno=os.dup(options.partner))
            _attack((asker if "asks" in how else answerer)(sock=partner, **how), target)
            partner.close()
        elif "attack" in request:
            _attack(ATTACKS[request["attack"]](target), target)


if __name__ == "__main__":
    main()
