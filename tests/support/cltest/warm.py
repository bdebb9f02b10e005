"""`corelane compile` in processes that have imported numba and compiled once: each is forked from one that has.

What a command does is what it does in a process of its own, but for the second that its imports take. The streams, the
exit status and the modules of a user are those of one command alone.

    python warm.py     # reads a line of JSON for each command: {"args": [...], "cwd": PATH}; prints one for its answer
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

# One of each kind, so that what numba loads when it first compiles is there.
FIRST = """
import numpy as np
from corelane import libos
from corelane.apps.http import handlers as http

@libos.udp(port=1)
def first(request, reply):
    if len(request) == 3:
        raise ValueError("three")
    return int(np.zeros(len(request), np.uint64).sum())

@http.route("/")
def page(target, body, reply):
    return 200, 0
"""


class Warm:
    """A process that waits for commands; to be closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """`corelane ARGS` in a folder; as commands.ask."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"args": args, "cwd": str(cwd)}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that waits for commands has ended"
        return subprocess.CompletedProcess(args, **json.loads(answer))

    def close(self) -> None:
        """End it, and wait."""
        with self._process:  # closes its stdin: it ends
            pass


def _run(args: Sequence[str]) -> NoReturn:
    """The command, in this process, which ends as the interpreter does."""
    from corelane.cli.main import main

    sys.argv = ["corelane", *args]
    try:
        status = main()
    except SystemExit as end:  # --help's
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)


def _answer(args: Sequence[str], cwd: str) -> dict[str, object]:
    """What a process that was forked for the command printed, and how it ended."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            os.chdir(cwd)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _run(args)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return {"returncode": status, "stdout": out.read(), "stderr": err.read()}


def _compile_once() -> None:
    """As the first command would, so that those that are forked need not."""
    from corelane.cli.main import main

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "first_of_warm.py"
        program.write_text(FIRST)
        assert main(["compile", str(program), "--output", str(program.with_suffix(".so"))]) == 0
        sys.path.remove(folder)
    del sys.modules[program.stem]


if __name__ == "__main__":
    _compile_once()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(asked["args"], asked["cwd"])), flush=True)
