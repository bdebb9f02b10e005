"""The command: its overview, its errors, its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.cli.main import COMMANDS, main

# What starting the command may not import: each costs more than the whole budget.
HEAVY = {
    "numpy",
    "numba",
    "llvmlite",
    "matplotlib",
    "psutil",
    "elftools",
    "cffi",
    "_cffi_backend",
    "ctypes",
    "asyncio",
    "json",
}


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


def test_help_of_an_application_has_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "raft-kv", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "options of raft-kv" in text
    assert "10 needs a core that nothing else disturbs (default 200)" in text


def test_help_imports_next_to_nothing() -> None:
    script = (
        "import sys; from corelane.cli.main import main; main(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not loaded & HEAVY
    ours = {m for m in loaded if m.startswith("corelane.")}
    cli = {f"corelane.cli.{name}" for name in ("main", "streams", "unwinding", "usage")} | {"corelane.cli"}
    assert ours == {*cli, "corelane.runtime", "corelane.runtime.errors"}


@pytest.mark.parametrize(
    ("args", "code", "finding"),
    [
        (["fly"], 2, "no command 'fly'"),
        (["bench", "nonsense"], 2, "no benchmark named 'nonsense'"),
        (["bench"], 2, "name a benchmark"),
        (["bench", "raft-fail", "--seconds", "0"], 2, "--seconds takes"),
        (["bench", "raft_fail", "--seconds", "0"], 2, "--seconds takes"),
        (["raft_sim", "--nodes", "10"], 2, "whole number from 1 to 9"),
        (["bench", "canary", "--seconds", "-1"], 2, "--seconds"),
        (["bench", "canary", "--seconds", "x"], 2, "invalid float"),
        (["bench", "canary", "--cores", "0,0"], 2, "names a CPU twice"),
        (["bench", "canary", "--cores", "99999"], 2, "CPU 99999 does not exist or may not be used"),
        (["run", "echo", "--cpus", "0,99999"], 2, "argument --cpus: CPU 99999 does not exist or may not be used"),
        (["run", "echo", "--cpus", "-1"], 2, "argument --cpus: CPU -1 does not exist or may not be used"),
        (["run", "echo", "--cpus", "0,0"], 2, "2 CPUs for 1 kthreads"),
        (["run", "echo", "--kthreads", "65"], 2, "whole number from 1 to 64"),
        (["run", "echo", "--port", "65536"], 2, "whole number from 1 to 65535"),
        (["run", "echo", "--weight", "1001"], 2, "whole number from 1 to 1000"),
        (["run", "echo", "--deadline-us", "4294967296"], 2, "whole number from 0 to 4294967295"),
        (["run", "echo", "--address", "10.77.0.300"], 2, "no IPv4 address"),
        (["run", "echo", "--name", "a/b"], 2, "no name"),
        (["run", "echo", "--socket", 108 * "x"], 2, "1 to 107 bytes"),
        (["run", "echo", "--option", "x"], 2, "not of the form key=value"),
        (["run", "echo", "--option", "x=1"], 2, "echo has no such option"),
        (["run", "echo", "--option", "port=x"], 2, "'x' is no int"),
        (["run", "nosuch"], 2, "no built-in application"),
        (["run", "json:loads", "--option", "x=1"], 2, "takes no --option"),
        (["run", "json:loads"], 2, "give --port"),
        (["run", "echo", "--nic", "eth9"], 2, "--nic af_xdp:eth9; a tap device: --nic tap:eth9"),
        (["up", "--nic", "eth9"], 2, "--nic af_xdp:eth9; a tap device: --nic tap:eth9"),
        (["up", "--nic", "dpdk:eth9"], 2, "--nic af_xdp:eth9"),
        (["up", "--nic", "tap"], 2, "tap needs a name"),
        (["up", "--nic", "loadgen:smtp"], 2, "no traffic 'smtp'"),
        (["up", "--nic", "loadgen:echo,rate=x"], 2, "could not convert"),
        (["up", "--cores", "x"], 2, "list of CPUs"),
        (["up", "--cores", "99999"], 2, "CPU 99999 does not exist or may not be used"),
        (["up", "--policy", "nosuch"], 2, "there is none of that name"),
        (["policy", "nosuch"], 2, "there is none of that name"),
        (["run", "json:"], 2, "write it as module:function"),
        (["raft", "clock", "--peers", "1=127.0.0.1:1", "--timeout", "0"], 1, "none answers"),
        (["up", "--set", "nic.x=1"], 2, "no such option"),
        (["policy", "--set", "a=1"], 2, "settings without a policy"),
        (["raft", "init"], 2, "neither or both"),
        (["raft", "status", "--peers", "1=10.0.0.1:0"], 2, "0 is no port"),
        (["log", "create", "x", "--area"], 2, "corelane areas create"),
        (["config"], 2, "say what to print"),
        (["config", "--unit", "nosuch"], 2, "one of: batch, echo, http, kv, raft-kv, raft-resp, resp, spin"),
        (["bench", "report", "/nonexistent.json"], 1, "No such file"),
        (["bench", "--wrong"], 2, "unrecognized arguments"),
    ],
)
def test_errors_are_one_sentence(args: list[str], code: int, finding: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == code
    out, err = capsys.readouterr()
    assert finding in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize(
    ("args", "code", "finding"),
    [
        (["fly", "--json"], 2, "no command 'fly'"),
        (["bench", "nonsense", "--json"], 2, "no benchmark named 'nonsense'"),
        (["bench", "--json"], 2, "name a benchmark"),
        (["bench", "canary", "--seconds", "-1", "--json"], 2, "--seconds"),
        (["bench", "canary", "--cores", "99999", "--json=out.json"], 2, "CPU 99999 does not exist"),
        (["bench", "canary", "--json", "/dev/null/x.json"], 1, "not a folder that may be written"),
        (["bench", "report", "--json", "/nonexistent.json"], 1, "No such file"),
        (["doctor", "--json", "--wrong"], 2, "unrecognized arguments"),
        (["ps", "--json", "--socket", "/nonexistent.sock"], 1, "no iokernel listens"),
        (["run", "--json"], 2, "target"),
        (["run", "nosuch", "--json"], 2, "nosuch"),
        (["up", "--json", "--config", "/nonexistent.toml"], 1, "/nonexistent.toml"),
        (["config", "--json", "--wrong"], 2, "unrecognized arguments"),
    ],
)
def test_errors_are_objects_where_json_is_asked_for(
    args: list[str], code: int, finding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == code
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    told = json.loads(line)
    assert set(told) == {"error"}
    assert set(told["error"]) == {"what", "why", "hint"}
    assert all(isinstance(text, str) for text in told["error"].values())
    assert told["error"]["what"]
    assert finding in " ".join(told["error"].values())
    assert len(err.strip().splitlines()) == 1


def test_version_and_config_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version", "--json"]) == 0
    number = json.loads(capsys.readouterr().out)["version"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"corelane {number}\n"
    assert main(["config", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"cflags", "libs", "library", "probe_cflags"} | {
        *("include_dir", "pkgconfig_dir", "cmake_dir", "examples", "gdb", "launcher")
    }
    assert Path(told["library"]).exists()
    assert "-lcorelane" in told["libs"]


def test_bench_list_as_json_names_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"canary"} <= {e["name"] for e in listed}
    assert all(set(e) == {"name", "summary", "figures"} for e in listed)


def test_bench_canary_writes_document_plot_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
    out, png = tmp_path / "c.json", tmp_path / "c.png"
    assert main(["bench", "canary", "--seconds", "0.2", "--json", str(out), "--plot", str(png)]) == 0
    assert "longest gap" in capsys.readouterr().out
    assert png.stat().st_size > 1000
    assert main(["bench", "report", str(tmp_path)]) == 0
    assert "## canary" in capsys.readouterr().out
    assert main(["bench", "report", "--json", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [d["bench"] for d in told["documents"]] == ["canary"]
    assert told["figures"] == told["documents"][0]["figures"]
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n")
    assert main(["bench", "report", str(out), "--into", str(page)]) == 0
    begun = page.read_text().removeprefix("before\n<!-- results: begin -->\n\n")
    assert begun.startswith(("## Figures", "canary is not judged: "))  # the second on a machine that others use
    assert "\n## canary\n" in begun
    assert page.read_text().endswith("<!-- results: end -->\nafter\n")
    assert "old" not in page.read_text()
    page.write_text("no markers")
    assert main(["bench", "report", str(out), "--into", str(page)]) == 1
    assert "has no result markers" in capsys.readouterr().err
    assert main(["bench", "canary", "--seconds", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bench"] == "canary"


def test_a_reader_that_leaves_causes_no_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m corelane.cli.main bench --list | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
