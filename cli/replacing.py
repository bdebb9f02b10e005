"""corelane run --replace: waiting for those that were replaced."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from ..runtime.paths import default_socket
from .saying import say

if TYPE_CHECKING:
    from ..libos import Runtime

LOOK_S = 0.1  # between two looks at whether something is over


def tell_replaced(options: argparse.Namespace, name: str, runtime: Runtime, others: int) -> None:
    """Say whom it has replaced, and, once they have ended, that they have. They may take as long as --wait says."""
    if not others:
        say(options, "replaced", f"nobody else was attached as {name}", members=0)
        return
    say(options, "draining", f"{others} other member{'s' * (others != 1)} of {name} drain{'s' * (others == 1)}")
    deadline = time.monotonic() + options.wait
    while (left := _draining(options, name)) and time.monotonic() < deadline and not runtime.wait(LOOK_S):
        pass
    if left:
        text = f"of {others} other members of {name} {left} still drain: it does not wait for them"
    else:
        text = f"all other members of {name} have ended"
    say(options, "replaced", text, members=others, left=left)


def _draining(options: argparse.Namespace, name: str) -> int:
    """How many members of a group drain."""
    from .watch import snapshot

    apps = snapshot(options.socket or default_socket())["apps"]
    return sum(app["name"] == name and app["state"] == "draining" for app in apps)
