"""The test harness itself: it must fail when it should."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from cltest import CBuild, CompileError, ProgramFailed, cbuild, compiled, soak, wait_until
from cltest.cbuild import ROOT, setup_py
from cltest.mutants import Model
from cltest.planted import Planted, all_in_one

from corelane.libos.numba.folder import build_id


def program(tmp_path, body: str, headers: str = "") -> str:
    """A C source with this main; its path."""
    source = tmp_path / "p.c"
    source.write_text(
        f"#include <stdio.h>\n#include <stdlib.h>\n{headers}\nint main(int argc, char **argv)\n{{\n{body}\n}}\n"
    )
    return str(source)


def test_a_program_that_fails_shows_what_it_printed(tmp_path):
    builder = CBuild("plain")
    source = program(tmp_path, '(void)argc; printf("look here\\n"); return atoi(argv[1]);')
    run = builder.runner(builder.build(source, []))
    assert run(0) == "look here\n"
    with pytest.raises(ProgramFailed, match=r"exit status 3 \(plain build\)\nlook here"):
        run(3)


def test_a_program_that_hangs_is_ended(tmp_path):
    builder = CBuild("plain")
    source = program(tmp_path, "(void)argc; (void)argv; for (;;) pause();", "#include <unistd.h>")
    run = builder.runner(builder.build(source, []))
    with pytest.raises(ProgramFailed, match="still running after"):
        run(timeout_s=0.2)


def test_what_does_not_compile_says_why(tmp_path):
    with pytest.raises(CompileError):
        CBuild("plain").build(program(tmp_path, "unused_variable_here;"), [])


def test_who_compiles_ahead_holds_no_lock(monkeypatch):
    """It runs at idle priority: on a busy machine nobody would get what it holds."""
    compiled: list[Path] = []

    def compile_nothing(self, sources, *_):
        compiled.extend(sources)
        return list(sources)

    def lock(*_):
        raise AssertionError("took a lock")

    monkeypatch.setattr(CBuild, "_objects", compile_nothing)
    monkeypatch.setattr(cbuild, "symbols", lambda paths: [(frozenset(), frozenset({str(p)})) for p in paths])
    monkeypatch.setattr(cbuild, "_homes_of", lambda objects: {})
    monkeypatch.setattr(cbuild, "_made", {})
    monkeypatch.setattr(cbuild, "fcntl", SimpleNamespace(flock=lock, LOCK_EX=0))
    CBuild("asan").prepare()
    assert Path("tests/support/c/one_thread.c") in compiled
    with pytest.raises(AssertionError, match="took a lock"):
        CBuild("asan").build("tests/support/c/one_thread.c", [])


def test_two_that_compile_one_source_at_once_both_have_it(tmp_path):
    source = Path(program(tmp_path, "(void)argc; (void)argv; return 0;"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        objects = list(pool.map(lambda _: setup_py().compile_one(source, tmp_path, ["-O0"]), range(4)))
    assert {path for path, _ in objects} == {tmp_path / (str(source).replace("/", "__") + ".o")}
    assert any(compiled for _, compiled in objects)
    assert setup_py().compile_one(source, tmp_path, ["-O0"])[1] is False
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("variant", "body", "said"),
    [
        ("asan", "char *p = malloc((size_t)argc); (void)argv; p[argc] = 1; free(p); return 0;", "heap-buffer-overflow"),
        ("asan", "(void)argv; return argc + 2147483647 == 0;", "signed integer overflow"),
        ("asan", "(void)argv; return malloc((size_t)argc * 100) == NULL;", "LeakSanitizer"),
        ("tsan", "", "data race"),
    ],
)
def test_sanitizers_see_what_they_are_for(tmp_path, variant, body, said):
    source = program(tmp_path, body)
    if variant == "tsan":
        race = "static int shared;\nstatic void *add(void *arg) { shared++; return arg; }\n"
        body = (
            "(void)argc; (void)argv; pthread_t a, b; pthread_create(&a, NULL, add, NULL);"
            "pthread_create(&b, NULL, add, NULL); pthread_join(a, NULL); return pthread_join(b, NULL);"
        )
        source = program(tmp_path, body, f"#include <pthread.h>\n{race}")
    builder = CBuild(variant)
    with pytest.raises(ProgramFailed, match=said):
        builder.runner(builder.build(source, [], ["-O0"]))()


def test_a_program_that_was_said_to_have_one_thread_has_one(tmp_path):
    builder = CBuild("plain")
    headers = "#include <pthread.h>\nstatic void *nothing(void *arg) { return arg; }\n"
    body = (
        "(void)argv; pthread_t t; if (argc == 1) return 0;"
        "return pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL);"
    )
    binary = builder.build(program(tmp_path, body, headers), [])
    assert builder.starts_threads(binary)
    alone = builder.runner(binary, one_thread=True)
    assert alone() == builder.runner(binary)("more") == ""
    with pytest.raises(ProgramFailed, match="said to have one thread"):
        alone("more")


def test_all_c_programs_are_run_under_the_sanitizers():
    """The Makefile looks for them in test_*.py alone."""
    shared = [p for p in (ROOT / "tests").glob("*/**/conftest.py") if "c_program" in p.read_text()]
    assert shared == []


def test_wait_until():
    answers = iter([0, "", "yes"])
    assert wait_until(lambda: next(answers), 60.0) == "yes"
    with pytest.raises(AssertionError, match=r"waited 0.01 s in vain for rain \(last value 0\)"):
        wait_until(lambda: 0, 0.01, "rain")


def test_the_seed_can_be_chosen(seed, monkeypatch):
    assert seed == int(os.environ.get("CORELANE_SEED", seed))


@pytest.mark.root
def test_namespaces_are_joined_and_separate(netns):
    near, far = netns.link(queues=2, addresses=("10.9.0.1", "10.9.0.2"))
    wait_until(lambda: "state UP" in near.namespace.ip("link", "show", near.name), 60, "the link to come up")
    assert "10.9.0.2" in far.namespace.ip("-4", "addr")
    outside = subprocess.run(["ip", "-4", "addr"], capture_output=True, text=True, check=True)
    assert "10.9.0.1" not in outside.stdout
    with near.namespace.entered():
        assert near.name in [name for _, name in socket.if_nameindex()]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inside:
            inside.bind(("10.9.0.1", 0))
    names = {near.namespace.name, far.namespace.name}
    netns.close()
    assert not names & set(os.listdir("/run/netns"))


LIBCS = 3 << 31  # signals 32 and 33, which no program can set: glibc has them for itself
LOOKS = """
import signal, subprocess
from cltest import signals

signals.heed_ignored()
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
subprocess.run(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], check=True)
"""


def test_a_run_that_was_started_with_signals_ignored_has_them(tmp_path):
    """As by `make test &` in a script, which ignores SIGINT and SIGQUIT; SIGHUP stays ignored, as `nohup` wants it."""
    ignoring = "trap '' HUP INT QUIT TERM USR1 CHLD; exec \"$@\""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}
    command = ["sh", "-c", ignoring, "sh", sys.executable, "-c", LOOKS]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    heeds_interrupt, *child = done.stdout.split()
    assert (heeds_interrupt, child[::2]) == ("True", ["SigBlk:", "SigIgn:"])
    blocked, ignored = (int(mask, 16) & ~LIBCS for mask in child[1::2])
    assert (blocked, ignored) == (0, 1 << (signal.SIGHUP - 1))


def test_the_signals_of_this_run_are_heeded():
    """By this process, which may be a worker, whoever started it."""
    kept = {signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ}
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN}
    assert ignored <= kept
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_make_names_what_is_missing(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    command = ["make", "-f", str(ROOT / "Makefile"), "setup", "CC=no-such-compiler", f"VENV={tmp_path}/venv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "no C compiler: apt-get install gcc" in done.stdout


def test_every_other_soak_is_of_code_that_changed():
    model, of_its_own = ModuleType("model"), ModuleType("of_its_own")
    model.MODEL = Model("cede_model.c", {"CEDE_C": "libos/sched/cede.c"}, (), {}, variable="mutant")
    of_its_own.MODEL = of_its_own.OWN = 7  # names that a test uses for something else
    homes = ["libos/net", "iokernel/cores", "apps/kv", "cli", "drivers/port"]
    items = {home: SimpleNamespace(path=ROOT / "tests" / home / "test_x.py") for home in homes}
    items["iokernel/cores"].module, items["cli"].module = model, of_its_own

    def order(seed: int, *changed: str) -> list[str]:
        names = {id(item): home for home, item in items.items()}
        return [names[id(item)] for item in soak.drawn([*items.values()], changed, seed)]

    assert len({tuple(order(seed)) for seed in range(20)}) > 10
    for seed in range(20):
        assert order(seed) == order(seed)
        assert sorted(order(seed, "README.md", "docs/x.md")) == sorted(homes)
        drawn = order(seed, "libos/sched/wheel.c", "tests/apps/kv/c/kv_stress.c", "drivers/port/port.c", "README.md")
        assert sorted(drawn) == sorted(homes)
        assert {drawn[0], drawn[2], drawn[4]} == {"iokernel/cores", "apps/kv", "drivers/port"}
        assert order(seed, "cli/top.py")[0] == "cli"


def test_of_pairs_each_value_is_in_make_test():
    kept = [pair.values for pair in soak.pairs("abc", (1, 2, 3, 4), 3) if not pair.marks]
    assert len(kept) == 4
    assert [set(values) for values in zip(*kept, strict=True)] == [set("abc"), {1, 2, 3, 4}]
    assert sum(pair.marks[0].kwargs.get("short", False) for pair in soak.pairs("ab", (1, 2), longer=True)) == 2


TWICE = "static int n;\n\nint twice(int x, int (*add)(int a, int b))\n{\n    n++;\n    return n * add(x, x);\n}\n"


def test_of_the_mistakes_in_a_program_one_is_made(tmp_path):
    (tmp_path / "twice.c").write_text(TWICE)
    file = str(tmp_path / "twice.c")
    headers = "int twice(int x, int (*add)(int a, int b));\nstatic int sum(int a, int b) { return a + b; }"
    source = program(tmp_path, '(void)argc; printf("%d", twice(atoi(argv[1]), sum)); return 0;', headers)
    mistakes = {"once": [(file, "add(x, x)", "add(x, 0)")], "nothing": [(file, "n++;", "")]}
    planted = Planted(CBuild("plain"), "support", mistakes)
    assert [planted.program(source, name)(3) for name in mistakes] == ["3", "0"]
    assert planted.builder.runner(planted.programs[source])(3) == "6"


def test_a_mistake_beside_functions_is_refused(tmp_path):
    (tmp_path / "twice.c").write_text(TWICE)
    with pytest.raises(AssertionError, match=r"mistake 1 of .*twice\.c changes more than bodies of functions"):
        all_in_one(str(tmp_path / "twice.c"), {1: [("static int n;", "static int n = 1;")]})
    with pytest.raises(AssertionError, match="has 0 times"):
        all_in_one(str(tmp_path / "twice.c"), {1: [("gone", "")]})


def test_no_test_makes_names_in_the_folder_that_all_share():
    """What it made stayed there where its process was killed: a test has `tmp_path`, and `socket_path` for a socket."""
    tests = ROOT / "tests"
    made = [str(path.relative_to(ROOT)) for path in tests.glob("**/*.py") if 'f"/' + "tmp/" in path.read_text()]
    assert not made


def test_compiled_code_is_kept_for_all_runs_of_a_build(tmp_path, monkeypatch):
    assert os.environ["CORELANE_CACHE_DIR"] == str(compiled.CACHE)
    monkeypatch.setattr(compiled, "CACHE", tmp_path)
    for kind, build in (("handlers", build_id()), ("handlers", "another"), ("linked", "another")):
        (tmp_path / kind / build).mkdir(parents=True)
    compiled.drop_of_other_builds()
    assert list(tmp_path.glob("*/*")) == [tmp_path / "handlers" / build_id()]
