"""Where things are when nobody says: the same answer for `corelane up`, `run`, `ps` and the Python classes.

The control socket:

    as root          /run/corelane.sock
    otherwise        $XDG_RUNTIME_DIR/corelane.sock, or /tmp/corelane-UID/corelane.sock where that is not set

A client without root also finds an iokernel that root has started, unless its own user runs one.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import SystemLimit

SYSTEM_SOCKET = "/run/corelane.sock"
TEMPORARY = "/tmp"
DEFAULT_SOCKET_DOC = f"{SYSTEM_SOCKET} as root, else $XDG_RUNTIME_DIR/corelane.sock"
"""For help texts."""


def _own_folder(make: bool) -> Path:
    """The folder of this user's sockets, which may not be there unless `make`. SystemLimit if it is another's: its
    owner could pass himself off as our iokernel."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and Path(given).is_dir():
        return Path(given)
    folder = Path(TEMPORARY) / f"corelane-{os.geteuid()}"
    if make:
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return folder
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise SystemLimit(f"use {folder}", "others can write there", "set XDG_RUNTIME_DIR, or give --socket PATH")
    return folder


def default_socket(*, listen: bool = False) -> str:
    """The path of the control socket. listen: to listen on (its folder is made), else to find an iokernel.

    Who waits for an iokernel asks again each time: root's may come, or the user's own.
    """
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    folder = _own_folder(listen)
    own = folder / "corelane.sock"
    return SYSTEM_SOCKET if not (listen or own.exists()) and Path(SYSTEM_SOCKET).exists() else str(own)


def traces() -> Path:
    """Where traces are kept (libos/trace/kept.py): XDG Base Directory Specification. SystemLimit: there is no home."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".local/state"
    except RuntimeError as error:
        raise SystemLimit("find the folder of traces", str(error), "set XDG_STATE_HOME, or trace.folder") from error
    return base / "corelane" / "traces"
