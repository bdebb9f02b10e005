"""corelane lab record: the moves of cores of an iokernel that runs, as a load file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.errors import CorelaneError
from ..outputs import check_writable
from ..trace import moves
from ..watch import snapshot

if TYPE_CHECKING:
    from ...bench.lab.recorded import Stretch
    from ..trace.recording import Recording


def stretches(recording: Recording) -> list[Stretch]:
    """Of each core, for how long which application had it, and when that was decided."""
    from ...bench.lab.recorded import Stretch

    out = []
    for handovers, spans, _ in recording.followed.values():
        decided = {(move.new, move.end): move.begin for move in handovers}
        for span in spans:
            at = decided.get((span.owner, span.begin), span.begin) - recording.begin_tsc
            length = 1e3 * recording.us(span.end - span.begin)
            owner = recording.name(span.owner, span.begin).rpartition(".")[0] or str(span.owner)
            out.append(Stretch(1e3 * recording.us(at), length, owner))
    return out


def run(options: argparse.Namespace) -> int:
    """Record, write, and say what there is."""
    from ...bench.lab import loads
    from ...bench.lab.recorded import load_of
    from ...runtime.paths import default_socket

    check_writable(Path(options.file))
    before = snapshot(options.socket, options.wait)
    if before["cores"] is None:
        hint = "start the iokernel with a policy: corelane up --policy delay"
        raise CorelaneError("record a load", "cores stay where they were given out", hint)
    path = options.socket or default_socket()
    recording = moves.record(path, [a["loop"] for a in before["cores"]["allocators"]], options.seconds)
    load = load_of(stretches(recording), recording.seconds)
    loads.write(options.file, load)
    said = {"file": options.file, "jobs": len(load), "classes": len(load.kinds), "lost": recording.lost}
    if options.json:
        print(json.dumps(said))
    else:
        missing = f"; {recording.lost} moves were lost" if recording.lost else ""
        print(f"wrote {options.file}: {len(load)} jobs of {len(load.kinds)} applications{missing}")
    return 0
