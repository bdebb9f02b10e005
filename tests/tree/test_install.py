"""What `pip install` makes is whole: packages, library, headers, examples, and a C program built against them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cltest.cbuild import ROOT, setup_py


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A copy of the tree, built and installed into a folder of its own as pip does it."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, to copy what belongs to the tree and nothing else")
    tree, site = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("site")
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listing.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    # What this tree has compiled is as good there, and saves half a minute: none of it knows where the tree is.
    if (ROOT / "build" / "obj").exists():
        for part in ("obj", "cffi"):
            shutil.copytree(ROOT / "build" / part, tree / "build" / part)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--target", str(site), str(tree)], capture_output=True, text=True, check=False, cwd=site
    )
    assert done.returncode == 0, done.stderr
    return site


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_installed_corelane_is_whole(installed):
    for floor in setup_py().make_ffis():
        assert (installed / "corelane" / floor / "_native.abi3.so").exists()
    code = (
        "import importlib, corelane.runtime as r\n"
        f"for m in {sorted(setup_py().packages())!r}: importlib.import_module(m)\n"
        "from corelane.runtime.clock import default_clock\n"
        "print(r.__file__, default_clock().hz)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))
    assert (installed / "corelane" / "runtime" / "py.typed").exists()
    examples = {p.name for p in (ROOT / "examples").iterdir() if p.is_file()}
    assert {p.name for p in (installed / "corelane" / "examples").iterdir() if p.is_file()} == examples
    assert (installed / "corelane" / "libos" / "sched" / "uthreads_gdb.py").exists()
    report = installed / "corelane" / "bench" / "harness" / "report"
    assert all((report / name).exists() for name in ("plots.js", "style.css"))
    assert (installed / "corelane" / "cli" / "grafana.json").exists()
    lib = installed / "corelane" / "runtime" / "_lib"
    assert (lib / "libcorelane-posix.so").exists()
    assert (lib / "pkgconfig" / "corelane.pc").exists()
    assert len(list((lib / "cmake" / "corelane").glob("corelane-config*.cmake"))) == 2
    assert_benchmarks_can_compile(installed)


# A baseline that needs a library of others may be missing that, and nothing of ours.
COMPILES = """
import sys
from pathlib import Path
from corelane.bench.baseline.compiled import build
from corelane.bench.probes import c
from corelane.bench import footprint
from corelane.runtime.errors import SystemLimit

folder = Path(sys.argv[1])
for name, define, libraries in {baselines!r}:
    try:
        build(name, define, libraries, folder, ("-O0",))  # to see that it can be
    except SystemLimit as why:
        if not libraries or "source" in str(why) or "load.h" in str(why):
            raise
c.build("plain", folder)
footprint._compile("gcc", folder)
"""


def assert_benchmarks_can_compile(installed):
    """What benchmarks compile while they run is installed: a figure is not lost for want of a source."""
    calls = [
        re.search(r'\bbuild\("(\w+)", "(\w+)", \(([^)]*)\)', line)
        for path in sorted((ROOT / "bench").rglob("*.py"))
        for line in path.read_text().splitlines()
    ]
    baselines = [(m[1], m[2], tuple(re.findall(r"\w+", m[3]))) for m in calls if m]
    assert {"udp_put", "udp_mux_put", "raw_put", "libraft_put", "etcd_put"} <= {name for name, *_ in baselines}
    folder = installed / "compiled"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", COMPILES.format(baselines=baselines), str(folder)],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_free_threaded_python_is_refused_in_words(monkeypatch):
    module = setup_py()
    module.check_interpreter()
    monkeypatch.setattr(module.sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    with pytest.raises(SystemExit, match="free-threaded Python does not have: build it with an ordinary interpreter"):
        module.check_interpreter()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_c_program_builds_against_it(installed, tmp_path):
    base = installed / "corelane" / "runtime"
    headers = setup_py().public_headers()
    assert Path("corelane/libos/libos.h") in headers
    assert {p.relative_to(base / "_include") for p in (base / "_include").rglob("*.h")} == set(headers)
    assert os.access(base / "_lib" / "corelane-run", os.X_OK)
    source = tmp_path / "main.c"
    text = "".join(f"#include <{h}>\n" for h in headers)
    source.write_text(f"{text}int main(void) {{ return cl_clock_default()->hz > 0 ? 0 : 1; }}\n")
    flags = [
        "-Wall",
        "-Werror",
        "-pthread",
        f"-I{base / '_include'}",
        f"-L{base / '_lib'}",
        f"-Wl,-rpath,{base / '_lib'}",
    ]
    subprocess.run(
        ["gcc", "-std=gnu11", "-D_GNU_SOURCE", *flags, str(source), "-o", str(tmp_path / "main"), "-lcorelane"],
        check=True,
    )
    subprocess.run([str(tmp_path / "main")], check=True)
