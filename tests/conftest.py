"""Fixtures for all tests. See tests/support/cltest for what stands behind them.

c_program    compile a C test with the library and get a function that runs it (plain, ASan or TSan)
c_library    the same as a shared library, for calling inline header code from Python
c_fuzzer     the same under libFuzzer
netns        namespaces and veth pairs of this test alone (root)
seed         the seed of this run, printed
simulator    is compiled
socket_path  of a control socket
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest
from cltest import CBuild, NetnsFactory, netns_missing, signals, soak
from cltest.compiled import compile_once, drop_of_other_builds, keep_compiled

TESTS = Path(__file__).parent
DEFAULT_SEED = 20240607
ONE_THREAD = "one thread, in which nothing can race: ASan runs it"
# Their tests take longest. They run first, so that no worker is left with a long one when the others have ended.
LONGEST = ("bench", "docs", "tree", "cli", "apps")

# The same examples at every run, so that CI fails for a change and not by luck; CORELANE_HYPOTHESIS=random explores.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, print_blob=True, database=None)
hypothesis.settings.register_profile("random", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("CORELANE_HYPOTHESIS", "fixed"))


def pytest_configure(config: pytest.Config) -> None:
    """Also in each worker: what it starts inherits its signals, and where compiled code is kept."""
    signals.heed_ignored()
    keep_compiled()
    if not hasattr(config, "workerinput"):
        drop_of_other_builds()


def pytest_report_header() -> list[str]:
    return soak.header()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While tests are collected nearly nothing is garbage; to look for it takes a quarter of the time where files are
    compiled, too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses `c_program`, so that `-m c_program` selects what a sanitizer build is for. Leave out the soaks, or
    all else. Put the longest first."""
    for item in items:
        if "c_program" in getattr(item, "fixturenames", ()):
            item.add_marker("c_program")
    wanted = soak.chosen(items)
    if len(wanted) < len(items):
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = wanted if soak.SOAKS else sorted(wanted, key=_turn)


def keep_all_there_is() -> None:
    """What was imported, compiled or cached stays: no collection of garbage looks through it again."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    keep_all_there_is()


def _turn(item: pytest.Item) -> int:
    """Of a test's folder: its place among LONGEST, or behind them. Tests of a folder stay in their order."""
    folder = item.path.relative_to(TESTS).parts[0]
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


def pytest_runtest_setup(item: pytest.Item) -> None:
    soak.skip_without_time(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The next file's tests have what this one's have left: to look through that took a tenth of their time."""
    if nextitem and nextitem.path != item.path:
        keep_all_there_is()


@pytest.fixture
def socket_path() -> Iterator[str]:
    """A path for a control socket; short, since a unix socket's path is limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="cl-io-") as folder:
        yield f"{folder}/s"


@pytest.fixture(scope="session")
def c_program() -> Callable[..., Callable[..., str]]:
    """`run = c_program("tests/runtime/c/x.c", sources=None, cflags=(), one_thread=False, libs=())`;
    `run(*args, timeout_s=200)` returns the output.

    `sources` None links what it needs of the library, [] nothing, or give the C files wanted. libs: others, "-lz".
    CORELANE_SANITIZE=asan|tsan builds everything that way. A program that fails raises with what it printed.
    one_thread: it never starts a second one, and a plain run of it fails if it does. Such a program, and one into which
    nothing is linked that starts threads, is skipped under TSan, which has nothing to find in it.
    """
    builder = CBuild()
    made: dict[str, Path] = {}  # looking whether hundreds of objects are still of today takes longer than most programs

    def make(
        source: str,
        sources: Sequence[str | Path] | None = None,
        cflags: Sequence[str] = (),
        one_thread: bool = False,
        libs: Sequence[str] = (),
    ) -> Callable[..., str]:
        if one_thread and builder.variant == "tsan":
            pytest.skip(ONE_THREAD)
        asked = repr((source, sources, cflags))
        if asked not in made:
            made[asked] = builder.build(source, sources, cflags, libs=libs)
        binary = made[asked]
        if builder.variant == "tsan" and not builder.starts_threads(binary):
            pytest.skip(ONE_THREAD)
        return builder.runner(binary, one_thread)

    return make


@pytest.fixture(scope="session")
def c_library() -> Callable[..., Path]:
    """`path = c_library("tests/runtime/c/x.c", sources=[])`: a shared library, always built plain."""
    builder = CBuild("plain")

    def make(source: str, sources: Sequence[str | Path] | None = (), cflags: Sequence[str] = ()) -> Path:
        return builder.build(source, sources, cflags, shared=True)

    return make


@pytest.fixture(scope="session")
def c_fuzzer() -> Callable[..., Callable[..., str]]:
    """`run = c_fuzzer("tests/x/c/fuzz_y.c")`; `run("-runs=20000", "-seed=1")` fuzzes a bounded number of inputs."""
    builder = CBuild("fuzz")
    try:
        builder.compiler()
    except FileNotFoundError as error:
        pytest.skip(str(error))

    def make(
        source: str, sources: Sequence[str | Path] | None = None, cflags: Sequence[str] = ()
    ) -> Callable[..., str]:
        return builder.runner(builder.build(source, sources, [*cflags, "-fsanitize=fuzzer-no-link"]))

    return make


@pytest.fixture(scope="session")
def simulator() -> None:
    """The loop of the simulator is compiled, also for the processes that a test starts."""
    compile_once()


@pytest.fixture
def netns() -> Iterator[NetnsFactory]:
    """Makes network namespaces and veth pairs that are removed after the test; skips where that is not possible."""
    missing = netns_missing()
    if missing:
        pytest.skip(missing)
    factory = NetnsFactory()
    try:
        yield factory
    finally:
        factory.close()


@pytest.fixture
def seed() -> int:
    """Seed for every pseudo-random choice of a test: CORELANE_SEED, or a fixed one. Printed, so shown on failure."""
    value = int(os.environ.get("CORELANE_SEED", DEFAULT_SEED))
    print(f"seed {value} (CORELANE_SEED={value} repeats this run)")
    return value
