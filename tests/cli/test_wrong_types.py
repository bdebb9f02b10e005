"""Wrong types for the parameters of public constructors: one sentence that names the parameter and what to give."""

from __future__ import annotations

import inspect
import typing as annotations
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane import libos
from corelane.apps.kv import Session, Store
from corelane.apps.raft.service.client import Client
from corelane.apps.raft.service.service import serve as serve_raft
from corelane.apps.raft.service.settings import GroupSettings, LogSettings
from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.drivers.blk.file import FileBlk, FileIo, create, grow
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.loadgen.loadgen import Bursty, Closed, Echo, Loadgen, Memcached, Phase
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.pcap import PcapNic, ReplayNic
from corelane.drivers.nic.tap.tap import Tap
from corelane.drivers.port.port import PortMemory, open_port
from corelane.iokernel import Iokernel
from corelane.iokernel import __all__ as of_iokernel
from corelane.libos.storage.log.log import Log, format_device
from corelane.runtime import typed
from corelane.runtime.errors import CorelaneError

PUBLIC = [
    *(libos.Runtime, libos.c_handler, Iokernel, Store, Session, Client, serve_raft),
    *(memory_link, Tap, AfXdp, Loadgen, Echo, Memcached, Bursty, Closed, Phase, Faults, FaultNic, PcapNic, ReplayNic),
    *(memory_blk, BlkFaults, FaultBlk, FileBlk, create, grow, open_port, Log, format_device),
    *(Log.create, Log.open, Log.open_area),
]
CANDIDATES = ["text", 3.5, 7, True, object(), [object()], None, b"bytes"]


def kinds_of(called: Callable[..., Any]) -> dict[str, Any]:
    return typed._kinds(inspect.unwrap(called.__init__ if inspect.isclass(called) else called))


def value_for(kind: Any) -> Any:
    """Some value of a type, which nobody looks at."""
    for value in ("text", 7, 3.5, {}, (), lambda: None):
        if typed.fits(value, kind):
            return value
    return object.__new__(next(iter(annotations.get_args(kind)), kind))


@pytest.mark.parametrize("called", PUBLIC, ids=lambda c: c.__name__)
def test_a_value_of_the_wrong_type(called: Callable[..., Any]) -> None:
    kinds = kinds_of(called)
    needed = {
        p: value_for(kinds[p]) if p in kinds else object()
        for p, parameter in inspect.signature(called).parameters.items()
        if parameter.default is parameter.empty and parameter.kind != parameter.VAR_KEYWORD
    }
    tried = 0
    for name, kind in kinds.items():
        for wrong in (w for w in CANDIDATES if not typed.fits(w, kind)):
            with pytest.raises(CorelaneError) as refused:
                called(**{**needed, name: wrong})
            assert refused.value.why.startswith(f"{name} is ")
            assert refused.value.hint.startswith("expected ")
            assert "\n" not in str(refused.value)
            tried += 1
    assert tried


@pytest.mark.parametrize("called", PUBLIC)
def test_a_name_that_is_no_parameter(called: Callable[..., Any]) -> None:
    known = [n for n in inspect.signature(called).parameters if len(n) > 3][-1]
    if any(p.kind == p.VAR_KEYWORD for p in inspect.signature(called).parameters.values()):
        return  # says so itself
    with pytest.raises(CorelaneError, match=f"there is no parameter '{known}s' \\(did you mean "):
        called(**{known + "s": 1})


def test_a_missing_parameter() -> None:
    with pytest.raises(CorelaneError, match=r"missing a required argument: 'socket_path' \(its parameters"):
        Iokernel()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "call",
    [
        lambda text: Iokernel(text),
        lambda text: libos.Runtime(text, name="a"),
        lambda text: libos.Runtime("/nowhere", name=text),
        lambda text: open_port("/nowhere", name=text),
        lambda text: Log.create(Path(text), 1 << 20),
        lambda text: Log.open(text),
        lambda text: Log.open_area("a", text),
        lambda text: FileBlk(Path(text)),
        lambda text: Tap(text),
    ],
)
def test_a_text_with_a_zero_byte_is_not_taken_for_what_is_before_it(call: Callable[[str], object]) -> None:
    with pytest.raises(CorelaneError, match=r"x\\x00y.*\(expected no zero byte in it\)"):
        call("x\0y")


def test_groups_of_options_refuse_wrong_types_by_themselves() -> None:
    import corelane.iokernel as iokernel

    groups = [getattr(iokernel, n) for n in of_iokernel if n != "Iokernel"]
    more = (libos.Scheduler, libos.Network, libos.CoreShare, PortMemory, FileIo, GroupSettings, LogSettings)
    for group in (*groups, *more):
        for name in inspect.signature(group).parameters:
            with pytest.raises(CorelaneError, match=name.rstrip("_")):
                group(**{name: object()})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kthreads": "2"}, r"make a runtime: kthreads is '2' \(expected a whole number or None\)"),
        ({"kthreads": 2.0}, "kthreads is 2.0"),
        ({"kthreads": True}, "kthreads is True"),
        ({"kthreads": 1 << 40}, "make a runtime: .*within its limits"),
        ({"kthreads": -1}, "-1 kthreads"),
        ({"cpus": 1}, r"cpus is 1 \(expected a list, each a whole number or None\)"),
        ({"cpus": ["0"]}, "cpus is .*expected a list"),
        ({"cpus": "01"}, "cpus is '01'"),
        ({"nic": "eth0"}, r"nic is 'eth0' \(expected a Nic or None\)"),
        ({"scheduler": {"quantum_us": 5}}, "scheduler is .*expected a Scheduler"),
        ({"kind": None}, "kind is None"),
        ({"kthread": 2}, r"no parameter 'kthread' \(did you mean 'kthreads'\?\)"),
        ({"on_event": "print"}, "expected a function or None"),
    ],
)
def test_a_runtime_says_what_to_give(options: dict[str, Any], says: str) -> None:
    nic, end = memory_link()
    with nic, end, pytest.raises(CorelaneError, match=says):
        libos.Runtime(**{"nic": nic, **options})


def test_what_fits_is_taken_as_before() -> None:
    nic, end = memory_link((np.int64(1), 1), ipv4=["10.0.0.1", None])  # type: ignore[arg-type]
    with nic, end, libos.Runtime(nic=nic, kthreads=np.int32(1), cpus=range(1), name="x") as runtime:
        assert runtime.kthreads == 1
        for call, says in [
            (lambda: runtime.open_udp("53"), "port is '53'"),  # type: ignore[arg-type]
            (lambda: runtime.open_udp(1 << 20), "within its limits"),
            (lambda: runtime.stop("1"), "timeout_s is '1'"),  # type: ignore[arg-type]
            (lambda: runtime.add_neighbour("10.0.0", "02:00:00:00:00:09"), "10.0.0"),
            (lambda: runtime.add_neighbour("10.0.0.9", "02"), "six bytes"),
            (lambda: runtime.stats("0"), "kthread is '0'"),  # type: ignore[arg-type]
        ]:
            with pytest.raises(CorelaneError, match=says):
                call()


PEERS = "1=10.0.0.1:7400"


class Machine:
    def apply(self, command: bytes) -> bytes:
        return command


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s, *_, **__: s.store("a", b"1"), r"store an item: key is 'a' \(expected bytes\)"),
        (lambda s, *_, **__: s.store(b"a", "1"), "value is '1'"),
        (lambda s, *_, **__: s.store(b"a", b"1", mode="sett"), "mode is 'sett' .expected one of 'set', "),
        (lambda s, *_, **__: s.store(b"a", b"1", flags=1 << 40), "within its limits"),
        (lambda s, *_, **__: s.store(b"k" * 251, b"1"), "it has 251 bytes .keys have 1 to 250"),
        (lambda s, *_, **__: s.store(b"", b"1"), "it has 0 bytes"),
        (lambda s, *_, **__: s.get(b"k" * 300), "it has 300 bytes"),
        (lambda s, *_, **__: s.get("a"), "key is 'a'"),
        (lambda s, *_, **__: s.touch(b"a", "1"), "expires_s is '1'"),
        (lambda s, *_, **__: s.delta(b"a", 1.5), "amount is 1.5"),
        (lambda s, *_, **__: Session(s).execute("get a\r\n"), "data is 'get a"),
        (lambda _, r, **__: r.share("journal.log"), r"'journal.log' is none \(open it first"),
        (lambda _, r, **__: r.spawn(print), "spawn a uthread: builtin_function_or_method is no C function"),
        (lambda _, r, **__: r.fail("late"), "error is 'late' .expected a CorelaneError"),
        (lambda _, r, **__: r.batch(5), "5 cannot be called"),
        (lambda _, r, **__: r.bind("echo"), "str is no C function"),
        (lambda _, r, **__: r.bind(9000, 9000), "no function is at address 9000"),
        (lambda _, r, **__: serve_raft(r, 1, PEERS, machine=Machine), r"is the class Machine .*machine=Machine\(\)"),
        (lambda _, r, **__: serve_raft(r, 1, PEERS, machine=Machine()), "has no query, save, load"),
        (lambda *_, client: client.command("deposit 5"), "do a command: data is 'deposit 5'"),
        (lambda *_, client: client.query(5), "do a query: data is 5"),
    ],
)
def test_arguments_of_methods(call: Callable[..., Any], says: str) -> None:
    nic, end = memory_link(ipv4=("10.0.0.1", None))
    with nic, end, libos.Runtime(nic=nic) as runtime, Store(4 << 20) as store, Client(PEERS) as client:
        with pytest.raises(CorelaneError, match=says) as refused:
            call(store, runtime, client=client)
        assert "\n" not in str(refused.value)
        store.check()


def test_records_of_a_log(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", 1 << 20)
    with Log.open(tmp_path / "log") as log:
        for call in (
            lambda: log.append("text"),  # type: ignore[arg-type]
            lambda: log.append(b"1", tag="x"),  # type: ignore[arg-type]
            lambda: log.append(b"1", tag=1 << 64),
            lambda: log.append_async(5),  # type: ignore[arg-type]
        ):
            with pytest.raises(CorelaneError, match=r"write to the log: .*give bytes; tag and kind are whole numbers"):
                call()
        assert log.append(b"1") == 1


def test_udp_without_its_parentheses() -> None:
    with pytest.raises(CorelaneError, match=r"make handler .*echo: @libos.udp is called with options.*port=9000"):

        @libos.udp  # type: ignore[arg-type]
        def echo(request: Any, reply: Any) -> int:
            return 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compiled": "no"}, "compiled is 'no'"),
        ({"cache": 1}, "cache is 1"),
        ({"port": "9000"}, "port '9000'.*1 to 65535"),
        ({"state": [1, 2]}, "give a C-contiguous numpy array"),
        ({"state": "x"}, "numpy array"),
        ({"targets_us": 3, "classify": lambda r: 0}, "targets_us is 3"),
    ],
)
def test_options_of_udp(options: dict[str, Any], says: str) -> None:
    def handler(request: Any, reply: Any) -> int:
        return 0

    def with_state(request: Any, reply: Any, state: Any) -> int:
        return 0

    with pytest.raises(CorelaneError, match=says):
        libos.udp(**options)(with_state if "state" in options else handler).prepare()
