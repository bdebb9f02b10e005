"""Where the tests are had, and which of them are of sockets and loops."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import subprocess
import sys
import tarfile
import types
import unittest
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from .interpreters import ROOT, THIS, Interpreter, NotHere

CPYTHON = (
    "test_events",
    "test_selector_events",
    "test_sock_lowlevel",
    "test_sendfile",
    "test_streams",
    "test_server",
    "test_ssl",
    "test_sslproto",
    "test_buffered_proto",
    "test_base_events",
)
# Of uvloop's others, some are of its own means (libuv, Cython, deallocation), some of its sources' style.
UVLOOP = (
    "test_base",
    "test_tcp",
    "test_sockets",
    "test_udp",
    "test_unix",
    "test_context",
    "test_pipes",
    "test_dns",
    "test_signals",
    "test_process",
    "test_executors",
    "test_aiohttp",
)
# Classes whose tests are those of another one, of a loop with another selector.
SAME = ("*.PollEventLoopTests.*", "*.SelectEventLoopTests.*")


@dataclass(frozen=True)
class Suite:
    """Tests of one publisher. package: the name under which they import each other. folder: of that package. python:
    what runs them."""

    name: str
    package: str
    modules: tuple[str, ...]
    folder: Path
    python: Interpreter = THIS

    def prepare(self) -> None:
        """Make the package importable in this process, as what its tests take it for."""
        top, _, rest = self.package.partition(".")
        package = types.ModuleType(top)
        package.__path__ = [str(self.folder.parent if rest else self.folder)]
        sys.modules[top] = package
        if self.name == "uvloop":
            from uvloop import _testbase

            # It looks at the module of the loop's class, and expects what uvloop does of all others.
            _testbase.BaseTestCase.is_asyncio_loop = lambda _: True  # type: ignore[method-assign]

    def tests(self, module: str) -> Iterator[tuple[str, unittest.TestCase]]:
        """Tests of a module of the suite, by name: module.Class.test. Call `prepare` first."""
        loaded = unittest.defaultTestLoader.loadTestsFromName(f"{self.package}.{module}")
        for test in _flat(loaded):
            name = test.id().removeprefix(f"{self.package}.")
            if self.name != "uvloop" or _of_asyncio(test):
                yield name, test


def wanted(name: str, only: Collection[str], without: Collection[str]) -> bool:
    """Whether a name fits one of the patterns in `only`, and none of those in `without`."""
    fits = name in only or any(fnmatch.fnmatchcase(name, p) for p in only)
    return fits and not any(fnmatch.fnmatchcase(name, p) for p in without)


def _flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flat(test)
        else:
            yield test


def _of_asyncio(test: unittest.TestCase) -> bool:
    """Each test of uvloop's is there twice: for itself, and for asyncio.

    What stands for a module that cannot be imported counts, and fails.
    """
    from uvloop import _testbase

    return isinstance(test, _testbase.AIOTestCase) or type(test).__module__ == "unittest.loader"


def cpython(python: Interpreter = THIS) -> Suite:
    """The tests of an interpreter, or of Debian's one of the same minor version.

    Raises NotHere.
    """
    places = [Path(f"/usr/lib/python{python.version}/test")]
    if own := python.ask("import test; print(*test.__path__)"):
        places = [Path(own), *places]
    for place in places:
        if (place / "test_asyncio" / "functional.py").exists() and (place / "support" / "__init__.py").exists():
            return Suite("cpython", "test.test_asyncio", CPYTHON, place / "test_asyncio", python)
    raise NotHere(f"needs CPython's own tests: apt-get install libpython{python.version}-testsuite")


def uvloop() -> Suite:
    """The tests in the source distribution of the uvloop that is installed, which the package index has.

    Kept under build/. Raises NotHere.
    """
    try:
        version = importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        raise NotHere("needs uvloop: pip install uvloop") from None
    kept = ROOT / "build" / "uvloop" / version
    if not (kept / "tests" / "test_tcp.py").exists():
        _fetch(version, kept)
    return Suite("uvloop", "tests", UVLOOP, kept / "tests")


def _fetch(version: str, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    # What is built here: the description of the package alone, by the setuptools that are installed.
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-binary", ":all:", "--no-build-isolation", "-d", str(to), f"uvloop=={version}"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    archives = list(to.glob("uvloop-*.tar.gz"))
    if done.returncode or not archives:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise NotHere(f"needs the package index, to fetch uvloop {version}'s tests: {last}")
    with tarfile.open(archives[0]) as archive:
        for member in archive.getmembers():
            inside = Path(*Path(member.name).parts[1:])
            if member.isfile() and inside.parts[:1] == ("tests",) and ".." not in inside.parts:
                file = archive.extractfile(member)
                assert file is not None
                (to / inside).parent.mkdir(parents=True, exist_ok=True)
                (to / inside).write_bytes(file.read())


SUITES = {"cpython": cpython, "uvloop": uvloop}
