"""What Linux runs of a program's file: itself, or of a script what its first line names (fs/binfmt_script.c)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..runtime.errors import CorelaneError
from ..runtime.files import open_regular

_SCRIPTS_MOST = 5  # that run one another (fs/exec.c)
_LINE_BYTES = 255  # of a first line (linux/binfmts.h: BINPRM_BUF_SIZE)


def image_of(path: Path) -> Path:
    """The file of which the process consists then; of `#!/usr/bin/env PROGRAM` that of PROGRAM. CorelaneError: nothing
    is found by a first line's name. OSError as of reading a file."""
    for _ in range(_SCRIPTS_MOST):
        with open_regular(path) as file:
            line, _, _ = file.read(_LINE_BYTES).partition(b"\n")
        if not line.startswith(b"#!"):
            return path
        path = _interpreter(path, os.fsdecode(line[2:]).split())
    raise CorelaneError(f"run {path}", "scripts run one another without an end", "name a program in the first line")


def _interpreter(path: Path, words: list[str]) -> Path:
    name = words[0] if words else ""
    found = name if Path(name).is_file() and os.access(name, os.X_OK) else None
    if found and Path(name).name == "env":
        named = [word for word in words[1:] if word != "-S" and "=" not in word]
        if named and not named[0].startswith("-"):
            name, found = named[0], shutil.which(named[0])
    if not found:
        why = f"it is a script whose first line names {name or 'nothing'}, and there is no such program"
        raise CorelaneError(f"run {path}", why, "install that")
    return Path(found)
