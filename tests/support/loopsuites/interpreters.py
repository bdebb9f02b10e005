"""The interpreters that run the tests: this one, and others of this machine, which take the same build.

Its modules are of the limited API. Of what corelane needs, cffi alone is another one for each of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "build" / "loopsuites"
FLOORS = ("runtime", "drivers", "libos")  # that a loop needs


class NotHere(Exception):
    """It cannot be had here: why, and what to do."""


@dataclass(frozen=True)
class Interpreter:
    """version: "3.12". command: of it. path: folders of modules, besides its own."""

    version: str
    command: str
    path: tuple[Path, ...] = ()

    def ask(self, program: str) -> str:
        """What a program prints. Raises NotHere: it fails."""
        done = subprocess.run([self.command, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotHere(f"{self.command} fails: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
        return done.stdout.strip()

    def environment(self) -> dict[str, str]:
        """That has the modules of the tests' support, too."""
        path = os.pathsep.join(map(str, (ROOT / "tests" / "support", *self.path)))
        return {**os.environ, "PYTHONPATH": path}


THIS = Interpreter(f"{sys.version_info.major}.{sys.version_info.minor}", sys.executable)


def other(version: str) -> Interpreter:
    """The one of this version, with what corelane needs of the package index. Raises NotHere."""
    for command in _commands(version):
        found = Interpreter(version, command)
        try:
            if found.ask("import sys, pip; print(*sys.version_info[:2], sep='.')") == version:
                return Interpreter(version, command, (_tree(), _cffi(found)))
        except NotHere:
            continue
    raise NotHere(f"needs Python {version} with pip: pyenv install {version}")


def _commands(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))


def _tree() -> Path:
    """A folder in which the floors lie under the name that they install as."""
    folder = KEPT / "tree" / "corelane"
    folder.mkdir(parents=True, exist_ok=True)
    for floor in FLOORS:
        if not (folder / floor).is_symlink():
            (folder / floor).symlink_to(ROOT / floor)
    return folder.parent


def _cffi(python: Interpreter) -> Path:
    folder = KEPT / python.version
    if not list(folder.glob("_cffi_backend*")):
        pip = [python.command, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(folder)]
        done = subprocess.run([*pip, "cffi"], capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
            raise NotHere(f"needs the package index, for cffi of Python {python.version}: {last}")
    return folder
