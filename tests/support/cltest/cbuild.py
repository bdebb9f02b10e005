"""Compiles C test programs together with the library's own sources, plain or under a sanitizer.

Objects stay in `build/ctest/<variant>/`, one for each source, and are recompiled only when the source, a header that
it includes or the command changed (the dependency tracking is setup.py's). File locks, one for each program and one for
what all of a variant share, spare several pytest workers the same work: the first compiles, the others find everything
made.

Variants: `plain`, `asan` (address + undefined), `tsan`, `fuzz` (libFuzzer + address + undefined; needs clang). The
sanitizer builds define CORELANE_DEBUG=1, which turns on the library's own checks (buffer pools find double frees, ...).
The plain library is what setup.py has compiled for the tree itself.

    python -m cltest.cbuild asan tsan     # compile them ahead of the tests
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]

_COMMON = "-O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all -DCORELANE_DEBUG=1"
_EXTRA: dict[str, list[str]] = {
    "plain": shlex.split("-O1 -g1"),  # the tests' own: half of what -O2 -g takes
    # AddressSanitizer says nothing of what was never set: with a pattern in it, it is wrong each time.
    "asan": shlex.split(f"-fsanitize=address,undefined -ftrivial-auto-var-init=pattern {_COMMON}"),
    # TSan does not model stand-alone fences and gcc says so: they order only words that are atomic themselves.
    "tsan": shlex.split(f"-fsanitize=thread {_COMMON} -Wno-tsan"),
    "fuzz": shlex.split(f"-fsanitize=fuzzer-no-link,address,undefined -ftrivial-auto-var-init=pattern {_COMMON}"),
}
_LINK: dict[str, list[str]] = {
    "plain": [],
    "asan": ["-fsanitize=address,undefined"],
    "tsan": ["-fsanitize=thread"],
    "fuzz": ["-fsanitize=fuzzer,address,undefined"],
}
_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:exitcode=98",
}


class CompileError(AssertionError):
    """A C source did not compile or link; the text is the compiler's."""


class ProgramFailed(AssertionError):
    """A C program exited non-zero, was killed, or ran past its time; the text is what it printed."""


@functools.cache
def setup_py() -> ModuleType:
    """setup.py as a module (its setup() runs only as __main__): the one list of sources, flags and floors."""
    spec = importlib.util.spec_from_file_location("corelane_setup_py", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def library_sources() -> tuple[Path, ...]:
    """The library's C sources, as of when this process first asked."""
    return tuple(setup_py().c_sources())


_made: dict[tuple[str, Path], Path] = {}  # variant and source of the library; its object, which was of today
_seen: dict[tuple[Path, int], tuple[frozenset[str], frozenset[str]]] = {}  # a file as of a time, and its symbols


def symbols(paths: Sequence[Path]) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Of each object as it is now: names of other files that it uses, and names that it has for them.

    One process for all: there are hundreds.
    """
    keys = [(path, path.stat().st_mtime_ns) for path in paths]
    kinds: dict[Path, dict[str, str]] = {path: {} for path, time_ns in keys if (path, time_ns) not in _seen}
    if kinds:
        command = ["nm", "-A", "-P", "-g", *map(str, kinds)]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            path, _, rest = line.rpartition(": ")
            name, kind = rest.split()[:2]
            kinds[Path(path)][name] = kind
    for key in keys:
        if key not in _seen:
            used = frozenset(name for name, kind in kinds[key[0]].items() if kind in "Uvw")
            _seen[key] = used, frozenset(kinds[key[0]]) - used
    return [_seen[key] for key in keys]


@functools.cache
def _homes_of(objects: tuple[Path, ...]) -> Mapping[str, Path]:
    """Which source of the library has a name; these are the objects of all of them."""
    has = [has for _, has in symbols(objects)]
    return {name: source for source, names in zip(library_sources(), has, strict=True) for name in names}


@functools.cache
def _tsan_prefix() -> tuple[str, ...]:
    """TSan's shadow layout of this compiler does not fit a kernel with much address randomisation: switch that off."""
    setarch = shutil.which("setarch")
    if setarch and subprocess.run([setarch, "-R", "true"], capture_output=True, check=False).returncode == 0:
        return (setarch, "-R")
    return ()


def _name(source: Path, cflags: Sequence[str]) -> str:
    """Of what is made of a source with these flags."""
    name = str(source.with_suffix("")).replace("/", "__")
    return f"{name}-{hashlib.sha256(shlex.join(cflags).encode()).hexdigest()[:8]}" if cflags else name


def default_variant() -> str:
    """The variant that CORELANE_SANITIZE asks for: plain, asan or tsan."""
    name = os.environ.get("CORELANE_SANITIZE", "") or "plain"
    if name not in ("plain", "asan", "tsan"):
        raise ValueError(f"CORELANE_SANITIZE={name!r}: expected asan, tsan or nothing")
    return name


class CBuild:
    """Builds programs and shared libraries of one variant."""

    def __init__(self, variant: str | None = None) -> None:
        self.variant = variant or default_variant()
        self.dir = ROOT / "build" / "ctest" / self.variant
        self.objdir = self.dir / "obj"
        self.libdir = ROOT / "build" / "obj" / "plain" if self.variant == "plain" else self.objdir
        self._holds = True  # locks

    def compiler(self) -> list[str]:
        """The compiler of this variant: $CC or gcc; clang for `fuzz`."""
        if self.variant == "fuzz":
            found = shutil.which("clang-14") or shutil.which("clang")
            if not found:
                raise FileNotFoundError("fuzzing needs clang: apt-get install clang-14 libclang-rt-14-dev")
            return [found]
        return shlex.split(os.environ.get("CC", "gcc"))

    def flags(self, extra: Sequence[str] = ()) -> list[str]:
        """Compiler flags: the library's, the variant's, then `extra`."""
        return [*setup_py().CFLAGS, "-I.", *_EXTRA[self.variant], *extra]

    def prepare(self) -> None:
        """Compile the tests' C programs and what they need of the library, so that tests find it made.

        But for programs that do not compile without flags which their test gives. Without locks: this may run at idle
        priority, and a busy machine would let nobody have what an idle process holds. What a test needs meanwhile, it
        compiles as well.
        """
        self._holds = False
        home = self._homes()

        def compiled(source: Path) -> list[Path]:
            with contextlib.suppress(CompileError):
                return self._main(source)
            return []

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            programs = sorted(p.relative_to(ROOT) for p in (ROOT / "tests").glob("**/c/*.c"))
            for objects in pool.map(compiled, programs):  # one by one: some have a source of the library in them
                self._needed(objects, home)

    @contextlib.contextmanager
    def _locked(self, program: str = "") -> Iterator[None]:
        """For one process at a time: a program of that name, or what all share. Who needs both takes the program
        first."""
        if not self._holds:
            yield
            return
        locks = self.dir / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / (program or "all")).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _main(self, source: Path, cflags: Sequence[str] = ()) -> list[Path]:
        """The object of a program's own source; those of other flags lie elsewhere, and stay."""
        name = _name(source, cflags)
        with self._locked(f"{name}.o"):
            return self._objects([source], self.flags(cflags), self.objdir / name if cflags else self.objdir)

    def _library(self, sources: Sequence[Path]) -> list[Path]:
        """Objects of sources of the library, compiled where they are stale.

        A process looks once: it tests the library as it was then, and to look at hundreds of objects takes longer than
        most programs.
        """
        new = [source for source in sources if (self.variant, source) not in _made]
        flags = setup_py().CFLAGS if self.variant == "plain" else self.flags()
        _made.update(zip(((self.variant, s) for s in new), self._objects(new, flags, self.libdir), strict=True))
        return [_made[self.variant, source] for source in sources]

    def _homes(self) -> Mapping[str, Path]:
        """Which source of the library has a name, as of the plain objects."""
        plain = self if self.variant == "plain" else CBuild("plain")
        with contextlib.nullcontext() if plain is self or not self._holds else plain._locked():
            return _homes_of(tuple(plain._library(library_sources())))

    def _needed(self, objects: Sequence[Path], home: Mapping[str, Path]) -> list[Path]:
        """What of the library these objects use, and what that uses: no more is compiled and linked, as of an archive.

        What uses a name is taken from this variant's objects.
        """
        own = {name for _, has in symbols(objects) for name in has}  # a test's source may have the library's in it
        found: dict[Path, Path] = {}
        fresh = list(objects)
        while fresh:
            names = {name for used, _ in symbols(fresh) for name in used} & home.keys() - own
            sources = sorted({home[name] for name in names} - found.keys())
            fresh = self._library(sources)
            found.update(zip(sources, fresh, strict=True))
        return list(found.values())

    def _objects(self, sources: Sequence[Path], flags: Sequence[str], objdir: Path) -> list[Path]:
        compile_one = setup_py().compile_one
        cc = self.compiler()
        objdir.mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            jobs = [pool.submit(compile_one, s, objdir, list(flags), cc) for s in sources]
            try:
                return [job.result()[0] for job in jobs]
            except SystemExit as error:
                raise CompileError(str(error)) from None

    def _link(self, target: Path, objects: Sequence[Path], flags: Sequence[str], libs: Sequence[str] = ()) -> Path:
        command = [*self.compiler(), "-pthread", *flags, *map(str, objects), *libs, "-ldl", "-lm", "-o", str(target)]
        stamp = target.with_name(target.name + ".cmd")
        digest = hashlib.sha256(shlex.join(command).encode()).hexdigest()
        newest = max(o.stat().st_mtime_ns for o in objects)
        made = target.exists() and stamp.exists() and stamp.read_text() == digest
        if made and target.stat().st_mtime_ns >= newest:
            return target
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"failed: {shlex.join(command)}\n{done.stderr}")
        stamp.write_text(digest)
        return target

    def build(
        self,
        source: str | Path,
        sources: Sequence[str | Path] | None = None,
        cflags: Sequence[str] = (),
        shared: bool = False,
        libs: Sequence[str] = (),
    ) -> Path:
        """Compile `source` (relative to the root) with `sources` and return the binary.

        `cflags` apply to `source` alone. `sources` None links what it needs of the library, but for what is in
        `source`. `shared` makes a shared library instead of a program. libs: what else is linked, as in "-lz".
        """
        whole = library_sources()
        main = Path(source)
        target = self.dir / (_name(main, cflags) + (".so" if shared else ""))
        with self._locked(target.name):
            objects = self._main(main, cflags)
            with self._locked():
                if sources is None:
                    objects += self._needed(objects, self._homes())
                else:
                    given = [Path(s) for s in sources]
                    objects += self._library([s for s in given if s in whole])
                    objects += self._objects([s for s in given if s not in whole], self.flags(), self.objdir)
            return self._link(target, objects, [*_LINK[self.variant], *(["-shared"] if shared else [])], libs)

    def build_instead(
        self, source: str | Path, instead: Sequence[Path], folder: Path, cflags: Sequence[str] = ()
    ) -> Path:
        """The program `source` with these C files instead of those of the library that have the same names, made in
        `folder`. cflags: of them alone.

        They are compiled for one test, so quickly. Nobody else waits meanwhile.
        """
        objects = self._main(Path(source))
        objects += self._objects(instead, self.flags(["-O1", "-g0", *cflags]), folder)
        with self._locked():
            objects += self._needed(objects, self._homes())
        return self._link(folder / Path(source).stem, objects, [*_LINK[self.variant], "-Wl,--strip-debug"])

    def build_counted(self, source: str | Path, counted: Sequence[Path]) -> Path:
        """The program `source`, whose __sanitizer_cov_trace_pc is called at each basic block of these sources of the
        library."""
        folder = self.dir / "counted"
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked(folder.name):
            return self.build_instead(source, counted, folder, ["-fsanitize-coverage=trace-pc"])

    def build_planted(self, source: str | Path, name: str, texts: Mapping[str, str]) -> Path:
        """The program `source` with these texts instead of those of files of the library, and what chooses among the
        mistakes in them (planted.py). name: of what is kept of them."""
        folder = self.dir / "planted" / name
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked(f"planted_{name}"):
            instead = [Path("tests/support/c/planted.c")]
            for file, text in texts.items():
                copy = folder / file.replace("/", "__")
                if not copy.exists() or copy.read_text() != text:
                    copy.write_text(text)
                instead.append(copy)
            return self.build_instead(source, instead, folder)

    def build_library(self, target: Path) -> Path:
        """The whole library of this variant, as a shared one."""
        with self._locked():
            objects = self._library(library_sources())
            names_may_lack = [flag for flag in setup_py().LDFLAGS if flag != "-Wl,-z,defs"]  # the sanitizer's
            return self._link(target, objects, [*_LINK[self.variant], *names_may_lack])

    def build_shared(self, target: Path, sources: Sequence[Path], cflags: Sequence[str], libs: Sequence[str]) -> Path:
        """A shared object of sources that are no part of the library."""
        with self._locked(target.name):
            objects = self._objects(sources, self.flags(cflags), self.objdir)
            return self._link(target, objects, [*_LINK[self.variant], "-shared"], libs)

    def starts_threads(self, binary: Path) -> bool:
        """Whether anything that was linked into a program does."""
        return any(name.partition("@")[0] == "pthread_create" for name in symbols([binary])[0][0])

    @functools.cached_property
    def _one_thread(self) -> Path:
        return self.build("tests/support/c/one_thread.c", [], shared=True)

    def runner(self, binary: Path, one_thread: bool = False) -> Callable[..., str]:
        """A function that runs `binary`: `run(*args, timeout_s=200, env={}) -> what it printed`.

        ProgramFailed, with all that was printed, if it exits non-zero, dies by a signal or takes longer than
        `timeout_s` (a sanitizer gets four times as long). one_thread: or if the plain program starts a thread.
        """
        preload = {}
        if one_thread and self.variant == "plain":
            preload["LD_PRELOAD"] = str(self._one_thread)
        prefix = _tsan_prefix() if self.variant == "tsan" else ()
        slower = 1 if self.variant == "plain" else 4
        # libFuzzer's limit is on the peak that the kernel reports, which a program inherits from the process that
        # started it.
        limits = ("-rss_limit_mb=0", "-malloc_limit_mb=512") if self.variant == "fuzz" else ()

        def run(*args: object, timeout_s: float = 200.0, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
            command = [*prefix, str(binary), *limits, *map(str, args)]
            limit = timeout_s * slower
            try:
                done = subprocess.run(
                    command,
                    cwd=cwd,
                    env={**os.environ, **_ENV, **preload, **(env or {})},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    timeout=limit,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
                raise ProgramFailed(f"{shlex.join(command)}: still running after {limit:g} s\n{said}") from None
            if done.returncode:
                how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
                raise ProgramFailed(f"{shlex.join(command)}: {how} ({self.variant} build)\n{done.stdout}")
            return done.stdout

        return run


if __name__ == "__main__":
    for variant in sys.argv[1:]:
        CBuild(variant).prepare()
