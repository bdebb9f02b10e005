"""The tree keeps its own rules: floors, names, comments, what a library may not do."""

from __future__ import annotations

import ast
import functools
import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cltest.cbuild import ROOT, setup_py
from elftools.elf.elffile import ELFFile

FLOORS = (*setup_py().FLOORS, "cli")
BELOW = {**setup_py().BELOW, "cli": setup_py().FLOORS}


def files(*patterns: str, folders: tuple[str, ...] = FLOORS) -> list[Path]:
    """Source files of the floors, relative to the root, without what the build made."""
    found = [p for folder in folders for pattern in patterns for p in (ROOT / folder).rglob(pattern)]
    made = ("_include", "__pycache__")
    return sorted(p.relative_to(ROOT) for p in found if not set(made) & set(p.parts))


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A Python file of the floors. All are kept, and to look for garbage among them takes longer than to parse them."""
    gc.disable()
    try:
        return ast.parse((ROOT / path).read_text())
    finally:
        gc.enable()


def statements(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All of these and within them. A tenth of all nodes, since expressions have none."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            if inner := getattr(node, part, None):
                yield from statements(inner)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, floor) of every import of a floor; "" stands for one that is not relative."""
    package = path.parent.parts
    for node in statements(parsed(path).body):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] in (*FLOORS, "corelane"):
                    yield node.lineno, ""
        elif isinstance(node, ast.ImportFrom):
            words = (node.module or "").split(".")
            if node.level == 0:
                if words[0] in (*FLOORS, "corelane"):
                    yield node.lineno, ""
                continue
            base = package[: len(package) - node.level + 1]
            targets = [[*base, *words]] if node.module else [[*base, name.name] for name in node.names]
            for target in targets:
                parts = [p for p in target if p]
                if parts:
                    yield node.lineno, parts[0]


def test_python_imports_respect_the_floors():
    wrong = []
    for path in files("*.py"):
        floor = path.parts[0]
        for line, target in imported(path):
            if target == "":
                wrong.append(f"{path}:{line}: inside the tree imports are relative (from ..runtime import x)")
            elif target != floor and target not in BELOW[floor]:
                wrong.append(
                    f"{path}:{line}: {floor} may not import {target}, only {', '.join(BELOW[floor]) or 'nothing'}"
                )
    assert not wrong, "\n".join(wrong)


def test_c_includes_respect_the_floors():
    wrong = []
    for path in files("*.c", "*.h", "*.S", folders=(*FLOORS, "include")):
        public = path.parts[0] == "include"
        floor = path.parts[2] if public else path.parts[0]
        for mark, name in re.findall(r'^\s*#\s*include (["<])([^">]+)[">]', (ROOT / path).read_text(), re.M):
            if mark == "<" and not name.startswith("corelane/"):
                continue
            target = Path(os.path.normpath((Path("include") if mark == "<" else path.parent) / name))
            below = target.parts[2] if mark == "<" else target.parts[0]
            if not (ROOT / target).exists():
                wrong.append(f"{path}: includes {name}, which is not relative to it")
            elif below != floor and below not in BELOW[floor]:
                wrong.append(f"{path}: {floor} may not include {target}")
            elif public and mark == '"':
                wrong.append(f"{path}: a public header includes only public ones (<corelane/...>), not {name}")
    assert not wrong, "\n".join(wrong)


def test_slashes_begin_only_cffi_markers():
    wrong = []
    for path in files("*.c", "*.h", folders=(*FLOORS, "include")):
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            bare = re.sub(r'"(\\.|[^"\\])*"', '""', line)
            if (
                "//" in bare
                and line not in ("// cffi: begin", "// cffi: end")
                and not re.search(r"https?://|/\*.*//", bare)
            ):
                wrong.append(f"{path}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def test_every_module_begins_with_what_it_is():
    missing = [str(p) for p in files("*.py") if not ast.get_docstring(parsed(p))]
    sources = files("*.c", "*.h", "*.S", folders=(*FLOORS, "include"))
    missing += [str(p) for p in sources if not (ROOT / p).read_text().lstrip().startswith("/*")]
    assert not missing, f"no opening comment: {missing}"


def test_no_bare_floor_is_importable():
    """A user's own `drivers/` or `apps/` must not meet ours: everything is under `corelane`."""
    code = (
        "import sys, importlib, json\n"
        f"for m in {[f'corelane.{f}' for f in FLOORS]!r}: importlib.import_module(m)\n"
        f"print([m for m in {list(FLOORS)!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert not [m for m in FLOORS if m in sys.modules]


@pytest.mark.parametrize("floor", ["runtime", "drivers", "iokernel", "cli"])
def test_light_floors_stay_light(floor):
    """numpy and numba cost 94 MB and a quarter of a second: no process pays for them that does not use them."""
    modules = [".".join(["corelane", *p.with_suffix("").parts]) for p in files("*.py", folders=(floor,))]
    modules = [m.removesuffix(".__init__") for m in modules if not m.endswith("__main__")]
    heavy = ("numpy", "numba", "llvmlite", "matplotlib", "scipy")
    code = (
        f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def stems(folder: Path) -> set[str]:
    """Names of sources and folders below a source folder."""
    return {p.stem if p.is_file() else p.name for p in folder.rglob("*") if "__pycache__" not in p.parts} | {
        folder.name
    }


def test_tests_mirror_the_tree():
    """tests/<floor>/<folder>/test_<what>.py tests something of <floor>/<folder>: name or docstring says what."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        where = path.relative_to(ROOT / "tests").parent
        if where.parts[:1] == ("tree",):
            continue
        source = ROOT / where
        if not source.is_dir():
            wrong.append(f"{path.relative_to(ROOT)}: there is no folder {where}/")
            continue
        name = path.stem.removeprefix("test_")
        named = any(name == s or name.startswith(f"{s}_") for s in stems(source))
        said = re.match(r'"""(.*?)"""', path.read_text(), re.S)
        if not named and (said is None or len(said[1].split()) < 4):
            wrong.append(f"{path.relative_to(ROOT)}: neither its name nor its docstring says what of {where}/ it tests")
    assert not wrong, "\n".join(wrong)


LIBRARY = ROOT / "runtime" / "_lib" / "libcorelane.so"
# A library never ends the process, prints, or uses what cannot be used safely.
NEVER = {
    "abort",
    "exit",
    "_exit",
    "quick_exit",
    "printf",
    "puts",
    "putchar",
    "vprintf",
    "perror",
    "gets",
    "strcpy",
    "strcat",
    "vsprintf",
    "tmpnam",
    "system",
    "popen",
    "rand",
    "srand",
    "gethostbyname",
    "localtime",
    "strtok",
}


def test_the_library_never_prints_or_ends_the_process():
    with LIBRARY.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        wanted = {
            s.name.removeprefix("__").removesuffix("_chk")
            for s in symbols.iter_symbols()
            if s["st_shndx"] == "SHN_UNDEF"
        }
    assert not wanted & NEVER


def test_the_library_exports_only_its_prefix():
    with LIBRARY.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        exported = {
            s.name
            for s in symbols.iter_symbols()
            if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL"
        }
    assert len(exported) > 50
    assert not {name for name in exported if not name.startswith("cl_")}


def hot_functions() -> set[str]:
    """Functions that the sources call hot."""
    out: set[str] = set()
    for path in files("*.c"):
        out |= set(re.findall(r"\bCL_HOT\b[^;{(]*?\b(\w+)\s*\(", (ROOT / path).read_text()))
    return out


def call_graph() -> dict[tuple[str, int], set[tuple[str, int]]]:
    """Function -> functions that it calls or jumps to, by the machine code (calls through pointers are not seen).

    A function is its name and its address, for static ones of different files may have one name; one of another library
    is its name and 0.
    """
    done = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(LIBRARY)], capture_output=True, text=True, check=True
    )
    graph: dict[tuple[str, int], set[tuple[str, int]]] = {}
    here = ("", 0)
    for line in done.stdout.splitlines():
        if not line.endswith((">", ">:")):
            continue
        if header := re.match(r"([0-9a-f]+) <([^>]+)>:", line):
            here = header[2].split(".")[0], int(header[1], 16)
            graph.setdefault(here, set())
            continue
        target = re.search(
            r"\b(?:call|jmp|j[a-z]{1,3}|b|bl)\s+([0-9a-f]+) <([A-Za-z_][\w.]*)(@plt)?(?:\+0x([0-9a-f]+))?>", line
        )
        if target:
            at = 0 if target[3] else int(target[1], 16) - int(target[4] or "0", 16)
            graph[here].add((target[2].split(".")[0], at))
    return graph


HOT_NEVER = {
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "posix_memalign",
    "strdup",
    "mmap",
    "munmap",
    "fopen",
    "open",
    "getenv",
    "pthread_create",
    "pthread_mutex_lock",
    "pthread_cond_wait",
    "nanosleep",
    "usleep",
    "snprintf",
    "vsnprintf",
    "fprintf",
}


def test_hot_functions_do_not_allocate_lock_sleep_or_format():
    graph, hot = call_graph(), hot_functions()
    assert hot, "nothing is marked CL_HOT"
    wrong = []
    found = sorted(function for function in graph if function[0] in hot)
    assert found, "none of them is in the library"
    for start in found:
        came_from: dict[tuple[str, int], tuple[str, int] | None] = {start: None}
        todo = [start]
        while todo:
            caller = todo.pop()
            for target in graph.get(caller, ()):
                if target[0] in HOT_NEVER:
                    chain, step = [target[0]], caller
                    while step:
                        chain.append(step[0])
                        step = came_from[step]
                    wrong.append(" <- ".join(chain))
                elif target not in came_from:
                    came_from[target] = caller
                    todo.append(target)
    assert not wrong, "\n".join(wrong)


# Where a runtime's time comes from: these read no clock but the one that they are given, with the exceptions below.
TIMED = ("libos/net", "libos/sched", "drivers/nic/link")
MACHINE_CLOCK = re.compile(r"\b(cl_tsc|cl_tsc_ordered|cl_clock_default|clock_gettime|gettimeofday|time)\(")
BY_THE_MACHINE = {
    "libos/sched/sched.c": "what a scheduler takes that was given none",
    "libos/sched/timer.c": "for an iokernel, which lives by the machine's time",
    "libos/sched/probe.c": "for code that runs outside of a scheduler, too",
    "drivers/nic/pcap.c": "the day on which a recording began",
    "drivers/nic/replay.c": "what a NIC takes that was given none",
}


def test_what_is_given_a_clock_reads_no_other():
    sources = [p for p in files("*.c", "*.h", folders=("drivers/nic",)) if p.parent == Path("drivers/nic")]
    sources += files("*.c", "*.h", folders=TIMED)
    bare = {p: re.sub(r"/\*.*?\*/", "", (ROOT / p).read_text(), flags=re.DOTALL) for p in sources}
    assert {str(p) for p, text in bare.items() if MACHINE_CLOCK.search(text)} == BY_THE_MACHINE.keys()


def test_named_tests_exist():
    """A comment or a page that says where something is tested says where that really is."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs git and its checkout: the list of the tree's own files comes from there")
    sources = [f for f in listed.stdout.split() if f.endswith((".c", ".h", ".S", ".py", ".md"))]
    named = re.compile(r"(?<![\w/.])(tests/[\w./-]*[\w/])(?![\w*{])")
    wrong = []
    for source in sources:
        for number, line in enumerate((ROOT / source).read_text().splitlines(), 1):
            for path in named.findall(line):
                example = source in ("tests/conftest.py", "tests/support/cltest/cbuild.py")
                if not (ROOT / path).exists() and not example and "{" not in line:
                    wrong.append(f"{source}:{number}: {path} does not exist")
    assert len(sources) > 300
    assert not wrong, "\n".join(wrong)
