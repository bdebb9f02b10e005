"""What `corelane run` takes as a target, and what it says about what it does not take."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until

from corelane.cli import targets
from corelane.cli.main import main
from corelane.cli.nics import open_nic, parse
from corelane.cli.run import _serves
from corelane.cli.usage import WrongUsage
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import Iokernel
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError

MODULE = """
import numpy as np

from corelane import libos

@libos.udp(port=7001, compiled=False)
def plain(request, reply):
    return 0

@libos.tcp(port=7003, compiled=False)
def stream(data):
    return len(data), None

def bare(request, reply):
    return 0

number = 5
calls = np.zeros(1, np.uint64)

@libos.every(ms=1, state=calls)
def tick(calls):
    calls[0] += 1

async def program():
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder; its name is this test's own."""
    name = f"handlers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def resolve(text: str, *words: str, port: int | None = None, plain: bool = False) -> targets.Target:
    return targets.resolve(text, words, port=port, plain=plain)


def test_the_three_kinds_are_told_apart(module: str) -> None:
    assert resolve("echo").name == "echo"
    assert resolve(f"{module}:plain").name == "plain"
    with pytest.raises(CorelaneError, match="cannot read"):
        resolve("./absent.so")


@pytest.mark.parametrize("plain", [False, True])
def test_several_names_of_a_module_are_run_together(module: str, plain: bool) -> None:
    """Handlers and periodic work."""
    target = resolve(f"{module}:plain,tick", plain=plain)
    assert target.name == "plain"
    nic, end = memory_link(ipv4=("10.0.0.1", None))
    with nic, end, Runtime(nic=nic) as runtime:
        service = target.setup(runtime)
        assert service.ports == (7001,)
        runtime.start()
        wait_until(lambda: service.stats()["calls"] > 1, 60, "two calls")
        assert sys.modules[module].calls[0] > 1
        assert resolve(f"{module}:bare,tick", port=7002).name == "bare"


def test_ports_are_those_of_their_protocol(module: str) -> None:
    target = resolve(f"{module}:plain,stream")
    nic, end = memory_link(ipv4=("10.0.0.1", None))
    with nic, end, Runtime(nic=nic) as runtime:
        service = target.setup(runtime)
        assert _serves(service) == "serves UDP port 7001 and TCP port 7003"
    only = resolve(f"{module}:stream")
    assert only.port is None
    nic, end = memory_link(ipv4=("10.0.0.1", None))
    with nic, end, Runtime(nic=nic) as runtime:
        assert _serves(only.setup(runtime)) == "serves TCP port 7003"


@pytest.fixture
def unimported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is forgotten after it, and how."""
    for name in ("path", "path_hooks", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.usefixtures("unimported")
@pytest.mark.parametrize("name", ["shout_beside", "package_beside.shout"])
def test_a_python_module_is_found_beside_a_shared_object_of_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stem = tmp_path / name.replace(".", "/")
    stem.parent.mkdir(exist_ok=True)
    stem.with_suffix(".so").write_bytes(b"\x7fELF, a handler in C")
    with pytest.raises(CorelaneError) as refused:
        resolve(f"{name}:shout", port=9000, plain=True)
    if "." not in name:
        assert f"a handler in C is run as ./{name}.so" in refused.value.hint
    stem.with_suffix(".py").write_text("import beside_it\ndef shout(request, reply):\n    return beside_it.n\n")
    (tmp_path / "beside_it.so").write_bytes(b"no module either")
    (tmp_path / "beside_it.py").write_text("n = 0\n")
    importlib.invalidate_caches()
    assert resolve(f"{name}:shout", port=9000, plain=True).name == "shout"


@pytest.mark.usefixtures("unimported")
def test_a_module_that_hides_the_users_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("def shout(request, reply):\n    return 0\n")
    with pytest.raises(CorelaneError, match=r"it is .*/json/__init__\.py, and hides json\.py: give that another name"):
        resolve("json:shout")


@pytest.mark.parametrize(
    ("text", "words", "finding"),
    [
        ("nosuch", (), "echo, http, kv, raft-kv, raft-resp, resp, spin"),
        ("echo", ("port",), "key=value"),
        ("echo", ("colour=red",), "one of: port, handler"),
        ("echo", ("port=x",), "'x' is no int"),
        ("no_such_module:f", (), "start it in the module's folder"),
        ("MODULE:nobody", (), "it has: "),
        ("MODULE:number", (), "is a int"),
        ("MODULE:bare", (), "no UDP port"),
        ("MODULE:plain,", (), "write it as module:function"),
        (":plain", (), "write it as module:function"),
        ("MODULE:plain,bare", (), "bare names no UDP port"),
        ("MODULE:plain", ("a=b",), "takes no --option"),
        ("MODULE:program,plain", (), "program is a coroutine function, which runs alone"),
    ],
)
def test_wrong_targets_are_refused_with_the_way_out(
    module: str, text: str, words: tuple[str, ...], finding: str
) -> None:
    with pytest.raises(CorelaneError, match=finding) as caught:
        resolve(text.replace("MODULE", module), *words)
    assert "\n" not in str(caught.value)


def test_a_coroutine_function_is_run_on_a_loop(module: str) -> None:
    target = resolve(f"{module}:program")
    assert target.name == "program"
    assert target.main is sys.modules[module].program
    with pytest.raises(WrongUsage, match="takes no --port"):
        resolve(f"{module}:program", port=9000)


@pytest.mark.parametrize(
    ("words", "finding"),
    [
        (("--kthreads", "2"), "a loop of asyncio has one, not 2"),
        (("--nic", "loadgen:echo"), "a generated load is for handlers"),
    ],
)
def test_what_a_loop_does_not_take_is_refused(
    module: str, words: tuple[str, ...], finding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{module}:program", *words]) == 2
    assert finding in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "finding"),
    [
        ("port=99999", "--option port=99999: run kv: port 99999 "),
        ("partitions=3", "--option partitions=3: make a store of .*: partitions must be a power of two"),
        ("memory_bytes=-5", "--option memory_bytes=-5: make a store: .*negative number"),
    ],
)
def test_what_an_application_refuses_of_its_options_is_a_wrong_command_line(word: str, finding: str) -> None:
    nic, other = memory_link()
    with nic, other, Runtime(nic=nic, address="10.0.0.2/24") as runtime, pytest.raises(WrongUsage, match=finding):
        resolve("kv", word).setup(runtime)


@pytest.mark.soak(short=True, takes_s=5)
def test_a_second_start_loads_no_compiler(start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What numba has made of a handler is called from the disk."""
    monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path / "cache"))
    text = "from corelane import libos\n@libos.udp(port=9000)\ndef one(request, reply):\n    return len(request)\n"
    (tmp_path / "served.py").write_text(text)
    path = str(tmp_path / "io.sock")
    with Iokernel(path, poll="block"):
        for compiles in (True, False):
            command = start("run", "served:one", "--socket", path, "--json")
            serving = command.event("serving")
            assert ("llvmlite" in Path(f"/proc/{serving['pid']}/maps").read_text()) == compiles
            assert command.stop() == 0


def test_a_module_that_fails_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_at_import.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CorelaneError, match="ZeroDivisionError"):
        resolve("fails_at_import:f")


def test_nic_names() -> None:
    assert parse("loadgen:echo,rate=1e5,seconds=2") == ("loadgen", "echo", {"rate": "1e5", "seconds": "2"})
    assert parse("tap:cl0") == ("tap", "cl0", {})
    with pytest.raises(CorelaneError, match="key=value"):
        parse("tap:cl0,fast")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("loadgen:echo,seconds=-1", "seconds: -1.0 is outside of its limits"),
        ("loadgen:echo,seconds=nan", "seconds: nan is outside"),
        ("loadgen:echo,rate=0", "rate: 0.0 is outside of its limits (give 0.01 to 1e+09)"),
        ("loadgen:echo,rate=fast", "could not convert"),
        ("loadgen:memcached,keys=0", "keys: 0 is outside"),
        ("loadgen:memcached,keys=-3", "keys: -3 is outside"),
        ("loadgen:echo,port=0", "port: 0 is outside"),
        ("loadgen:tea", "there is no traffic 'tea'"),
        ("loadgen:echo,sugar=1", "loadgen has no option 'sugar'"),
        ("tap", "tap needs a name"),
        ("af_xdp:nosuch0", "--address"),
        ("floppy:a", "--nic af_xdp:a; a tap device: --nic tap:a"),
    ],
)
def test_wrong_nics_are_refused_in_a_sentence(text: str, finding: str) -> None:
    with pytest.raises(CorelaneError) as caught:
        open_nic(text, 1, None)
    assert finding in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("suffix", "hint"), [("py", "shop:HANDLER"), ("so", r"\./shop\.so"), ("txt", "one of: batch")])
def test_a_file_of_that_name_is_proposed(
    suffix: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"shop.{suffix}").touch()
    with pytest.raises(CorelaneError, match=hint):
        resolve("shop")


def test_the_port_of_a_handler_is_known_beforehand(module: str) -> None:
    assert resolve(f"{module}:plain").port == 7001
    assert resolve(f"{module}:plain", port=7002).port == 7002
    assert resolve(f"{module}:tick").port is None
