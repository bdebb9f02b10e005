"""What kthreads write down of requests (libos/trace): what is drawn and kept; stages of requests that are slow for a
known reason, in virtual time; and over the whole path, embedded and attached."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from cltest import pages
from cltest.outside import CLIENT
from cltest.packets import Host

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Trace
from corelane.libos._native import lib
from corelane.libos.numba import calls
from corelane.libos.trace.bursts import TO_THE_NIC, TX_RING
from corelane.libos.trace.pieces import joined
from corelane.libos.trace.stages import TOGETHER, Table, table
from corelane.runtime import clock
from corelane.runtime._native import ffi
from corelane.runtime.errors import ConfigError, CorelaneError
from corelane.runtime.trace import Records, Segment, close_all, records_of

Program = Callable[..., Callable[..., str]]
MODES = {"sampled": lib.CL_RUNTIME_TRACE_SAMPLED, "full": lib.CL_RUNTIME_TRACE_FULL}
HZ = 10**9  # a virtual clock's
DELAY_US = 20.0


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_tracer_draws_keeps_the_slowest_and_writes_only_what_rises(c_program: Program, number: int) -> None:
    assert c_program("tests/libos/trace/c/tracer.c")(number) == "ok\n"


def test_gaps_of_the_machine_are_told_once_and_rests_are_none(c_program: Program) -> None:
    assert c_program("tests/libos/trace/c/gaps.c")() == "ok\n"


@pytest.mark.parametrize("number", [1, 2])
def test_latency_of_services_is_recorded_by_kthreads(c_program: Program, number: int) -> None:
    assert c_program("tests/libos/trace/c/latency.c")(number) == "ok\n"


@pytest.fixture(params=list(MODES))
def staged(request: Any, c_program: Program, tmp_path: Path) -> tuple[str, Table]:
    """Of tests/libos/trace/c/stages.c, in each mode that writes something down."""
    out = tmp_path / "records"
    c_program("tests/libos/trace/c/stages.c")(MODES[request.param], out)
    records = records_of(out.read_bytes())
    return request.param, table(records, ["others", *(f"UDP {port}" for port in range(9001, 9006))], HZ)


def slow(seen: Table, service: int, n: int) -> Table:
    """The slow ones of a service, which are so many."""
    one = seen.of_service(service)
    late = one.total >= DELAY_US / 2
    assert late.sum() == n
    assert (one.total[~late] < 1).all()
    stages = {path: t[late] for path, t in one.stages.items()}
    return replace(one, messages=one.messages[late], stages=stages, total=one.total[late])


WHERE = {
    1: ("handler", "runs"),
    2: ("handler", "wait: sleep"),
    4: ("inbox", "waits"),
    5: ("handler", "run queue"),
}


@pytest.mark.parametrize("service", WHERE)
def test_a_delay_is_in_the_stage_that_made_it(staged: tuple[str, Table], service: int) -> None:
    """Sampled, what one doorbell answers has no moments of its own: the one in front is not told apart."""
    mode, seen = staged
    where = TOGETHER if mode == "sampled" and service == 4 else WHERE[service]
    late = slow(seen, service, 40 if mode == "full" and service == 1 else 20)
    if service == 5:
        assert set(late.waits["what"]) == {lib.CL_TRACE_WAITS_YIELD}
    assert numpy.allclose(late.stages[where], DELAY_US, atol=0.3)
    for path, times in late.stages.items():
        assert path == where or times.max() < 0.3, path


def test_a_trace_does_not_change_who_is_slow(c_program: Program, tmp_path: Path) -> None:
    """Each answer comes when it came without one."""
    run = c_program("tests/libos/trace/c/stages.c")
    untraced = run(lib.CL_RUNTIME_TRACE_OFF, tmp_path / "none")
    assert len(untraced.splitlines()) == 1040
    assert [run(mode, tmp_path / "some") for mode in MODES.values()] == [untraced, untraced]


def test_who_waits_for_a_mutex_says_for_which_and_whom(staged: tuple[str, Table]) -> None:
    mode, seen = staged
    one = seen.of_service(3)
    waited = one.stages["handler", "wait: mutex"] > 0
    held = one.stages["handler", "wait: sleep"] > 0
    assert waited.sum() == held.sum() == 20
    assert numpy.allclose(one.stages["handler", "wait: mutex"][waited], DELAY_US, atol=0.3)
    assert numpy.allclose(one.stages["handler", "wait: sleep"][held], 2 * DELAY_US, atol=0.3)
    mutexes = one.waits[one.waits["what"] == lib.CL_TRACE_WAITS_MUTEX]
    sleeps = one.waits[one.waits["what"] == lib.CL_TRACE_WAITS_SLEEP]
    assert len({int(w) for w in mutexes["object"]}) == 1
    assert {int(w) for w in mutexes["holder"]} <= {int(w) for w in sleeps["uthread"]}
    assert (mode == "full") == bool((one.messages["flags"] & lib.CL_TRACE_DRAWN).all())


def test_stages_add_up_and_rise(staged: tuple[str, Table]) -> None:
    mode, seen = staged
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)
    assert all(times.min() >= 0 for times in seen.stages.values())
    assert len(numpy.unique(seen.messages["id"])) == len(seen.messages)
    assert bool((seen.messages["flags"] & lib.CL_TRACE_FROM_KTHREAD).all()), "this NIC has no stamps"
    most = 1040 if mode == "full" else 1040 * 4 // 5  # 5 come in a ms; the 4 slowest
    assert len(seen.messages) == most if mode == "full" else len(seen.messages) < most


def own(name: str) -> Segment:
    """The segment of a runtime of this process."""
    found = Segment.all_of_process(os.getpid())
    mine = [segment for segment in found if segment.name == name]
    close_all([segment for segment in found if segment not in mine])
    assert len(mine) == 1
    return mine[0]


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_no_request_waits_for_a_page_of_a_ring_that_is_written_for_the_first_time(serve: Any, mode: str) -> None:
    serve(echo_handler("c"), name=f"fresh-{mode}", trace=mode)
    with own(f"fresh-{mode}") as segment:
        memory = segment._memory
        assert memory.bytes > 50 * mmap.PAGESIZE
        assert pages.missing(int(ffi.cast("uintptr_t", memory.base)), memory.bytes) == 0


def read(segment: Segment, runtime: Any, n: int) -> Records:
    """The records of n requests that were answered. Their doorbell may be rung in another moment: it is waited for."""
    found: list[Records] = []

    def all_there(_: Any) -> bool:
        found.append(segment.read())
        return sum(len(part.messages) for part in found) >= n

    runtime.wait_until(all_there, 60.0)
    return joined(found)


@pytest.mark.parametrize("kind", ["c", "numba", "python"])
def test_each_kind_of_handler_is_written_down(serve: Any, kind: str) -> None:
    served = serve(echo_handler(kind), name=f"traced-{kind}", trace="full")
    with own(f"traced-{kind}") as segment:
        assert (segment.mode, segment.one_in, segment.rings) == ("full", 1, 1)
        assert segment.apart_ns is not None, "measured before kthreads run"
        segment.read()  # and nothing before
        for n in range(1, 6):
            served.ask(b"x" * n)
        records = read(segment, served.runtime, 5)
        assert segment.services() == ["others", "UDP 9000"]
    messages = records.messages
    assert list(messages["bytes"]) == [1, 2, 3, 4, 5]
    assert set(messages["service"]) == {1}
    assert records.garbage == 0
    assert ((messages["flags"] & (lib.CL_TRACE_ANSWERED | lib.CL_TRACE_UNSENT)) == lib.CL_TRACE_ANSWERED).all()
    assert (messages["sent"] > messages["end"]).all()


def sends_back(request, reply):  # type: ignore[no-untyped-def]  # numba types it
    reply[0] = request[0]
    return 1


def sleeps_if_asked(data, reply):  # type: ignore[no-untyped-def]
    if data[0] == 115:  # an s
        calls.sleep_ns(1_000_000)
    return len(data), 1


def test_datagrams_in_order_are_written_down(serve: Any) -> None:
    served = serve(libos.udp(9000, ordered=True)(sends_back), kthreads=2, name="ordered", trace="full")
    with own("ordered") as segment:
        for n in range(1, 4):
            assert served.ask(bytes(n)) == b"\0"
        messages = read(segment, served.runtime, 3).messages
        assert [segment.services()[s] for s in messages["service"]] == ["UDP 9000"] * 3
    assert sorted(messages["bytes"]) == [1, 2, 3]


def test_turns_of_a_connection_are_written_down_with_their_waits() -> None:
    nic, end = memory_link(ipv4=("10.0.0.1", None), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, name="turns", trace="full") as runtime:
        runtime.bind(libos.tcp(7000)(sleeps_if_asked))
        runtime.start()
        with own("turns") as segment:
            with runtime.connect_tcp(("10.0.0.1", 7000), timeout_s=10) as stream:
                for byte in (b"x", b"s", b"x"):
                    stream.write(byte)
                    assert len(stream.read(1, timeout_s=10)) == 1
            found = read(segment, runtime, 3)
            hz, names = segment.hz, segment.services()
    served = found.messages[found.messages["service"] == names.index("TCP 7000")]
    assert len(served) >= 3
    slow = served[served["blocked"] > 0]
    assert len(slow) == 1
    inside = int(slow["end"][0]) - int(slow["start"][0])  # that it blocks begins later, if its kthread loses its CPU
    assert inside * 1000 >= hz * 0.99
    assert 0 < int(slow["blocked"][0]) <= inside
    mine = found.waits[found.waits["id"] == slow["id"][0]]
    assert list(mine["what"]) == [lib.CL_TRACE_WAITS_SLEEP]


def test_modes_can_change_and_off_is_for_good(serve: Any) -> None:
    served = serve(echo_handler("c"), name="changes", trace=Trace(one_in=1, slowest=1, records=256))
    runtime = served.runtime
    assert runtime.trace == "sampled"
    with own("changes") as segment:
        runtime.trace = "off"
        assert segment.mode == "off"
        runtime.trace = "full"
        assert (runtime.trace, segment.mode) == ("full", "full")
    with pytest.raises(CorelaneError, match=r"mode 'some' \(one of: off, sampled, full\)"):
        runtime.trace = "some"
    untraced = serve(echo_handler("c"), name="untraced", trace="off").runtime
    assert untraced.trace == "off"
    with pytest.raises(CorelaneError, match="make it with trace='sampled'"):
        untraced.trace = "full"
    assert not [s for s in Segment.all_of_process(os.getpid()) if s.name == "untraced"]


def test_what_cannot_be_traced_so_is_refused() -> None:
    for wrong, said in (
        ({"mode": "some"}, 'mode: is "some"'),
        ({"records": 1000}, "a power of two"),
        ({"one_in": 0}, "one_in: is 0"),
        ({"slowest": 17}, "slowest: is 17"),
    ):
        with pytest.raises(ConfigError) as caught:
            Trace(**wrong)  # type: ignore[arg-type]
        assert said in str(caught.value)


def test_attached_the_iokernels_pick_up_is_where_it_begins(outside: Any) -> None:
    wire, path, start = outside
    start()
    with libos.Runtime(path, name="picked-up", trace="full") as runtime:
        runtime.bind(echo_handler("c"))
        runtime.start()
        server = wire.resolve(runtime.address)
        with own("picked-up") as segment:
            segment.read()
            for n in (1, 14, 15, 16, 17, 700):  # so that the stamp lies in the frame's last line, and behind it
                assert wire.ask(Host(server.mac, server.ip), bytes(n)) == bytes(n)
            records = read(segment, runtime, 6)
        runtime.stop()
    assert CLIENT.ip != server.ip
    messages = records.messages
    assert not (messages["flags"] & lib.CL_TRACE_FROM_KTHREAD).any()
    assert (messages["pickup"] > 0).all()
    assert (messages["pickup"].astype(float) / segment.hz < 60).all()


def test_an_iokernel_is_told_of_requests_and_their_latency(outside: Any) -> None:
    wire, path, start = outside
    kernel = start()
    with libos.Runtime(path, name="told", trace=Trace(one_in=1)) as runtime:
        runtime.bind(echo_handler("c"))
        runtime.bind(libos.udp(9001)(sends_back))
        runtime.start()
        server = wire.resolve(runtime.address)
        for n in range(1, 6):
            assert wire.ask(Host(server.mac, server.ip), bytes(n)) == bytes(n)

        def told(_: Any) -> bool:
            (app,) = kernel.stats()["apps"]
            services = app["services"] or ()  # they are told of one by one
            names = [(s["name"], s["requests"]) for s in services]
            return names == [("udp:9000", 5), ("udp:9001", 0)] and services[0]["latency"]["n"] == 5

        runtime.wait_until(told, 60.0)
        (app,) = kernel.stats()["apps"]
        assert 0 < app["services"][0]["latency"]["p50_us"] < 60e6
        runtime.stop()


def test_what_an_answer_waits_for_behind_its_doorbell_are_stages(outside: Any) -> None:
    """The iokernel's loop is the test's. Each answer is taken late, by a time that begins when its doorbell is known to
    have been rung. A round is of one moment, so there is nothing between the ring and the NIC."""
    wire, path, start = outside
    late_s, asks = 0.002, 12  # each is told of with the next one, which comes long after
    kernel = start(manual_hz=clock.default_clock().hz)
    with libos.Runtime(path, name="taken-late", trace="full") as runtime, own("taken-late") as segment:
        runtime.bind(echo_handler("c"))
        runtime.start()
        server, found = Host(runtime.mac, runtime.address), [segment.read()]

        def answers(n: int) -> bool:
            found.append(segment.read())
            return sum(len(part.messages) for part in found) == n

        def leaves(payload: bytes) -> bool:
            kernel.step(clock.tsc())
            return any(frame.endswith(payload) for frame in wire.nic.recv())

        for n in range(1, asks + 1):
            payload = b"ask" + bytes([n]) * 40
            wire.nic.send(CLIENT.datagram(server, payload))
            kernel.step(clock.tsc())
            runtime.wait_until(lambda _, n=n: answers(n), 60.0)
            time.sleep(late_s)
            runtime.wait_until(lambda _, payload=payload: leaves(payload), 60.0)
        records, services, hz = joined(found), segment.services(), segment.hz
        runtime.stop()
    seen = table(records, services, hz)
    known = seen.stages[TX_RING] > 0
    assert (len(known), records.garbage) == (asks, 0)
    assert len(records.bursts) == known.sum() >= asks - 2, "that of the last doorbell is not told yet"
    assert (seen.stages[TX_RING][known] >= late_s * 0.9e6).all()
    assert not seen.stages[TO_THE_NIC].any()
    assert numpy.allclose(sum(seen.stages.values()), seen.total)
    assert (seen.total[known] >= records.messages["sent"][known] * 1e6 / hz + late_s * 0.9e6).all()
