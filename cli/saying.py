"""What `corelane run` says while it runs."""

from __future__ import annotations

import argparse
import json

from ..runtime.notify import READY, notify
from .streams import tell


def say(options: argparse.Namespace, event: str, text: str, **more: object) -> None:
    """One line about what happens: JSON on stdout, or text on stderr; systemd learns when it serves."""
    if event == "serving":
        notify(READY, f"STATUS={text}")
    if options.json:
        # With its end in one piece: threads of the runtime say something, too.
        print(json.dumps({"event": event, "text": text, **more}) + "\n", end="", flush=True)
    else:
        tell(f"corelane run: {text}")
