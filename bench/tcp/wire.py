"""Over a bad wire: what bulk keeps of it, beside Linux through the same wire, and how one link is shared with Linux.

    goodput    ten connections at 1 % loss and a round trip of 10 ms: two runtimes, and Linux to Linux by taps
    tiny       1 % loss at round trips of 5 to 50 us and 10 Gbit/s, two runtimes by a virtual clock: over the same
               without losses; and the least that a connection carried, over a tenth
    fairness   ten flows of ours and ten of Linux' through one queue, to sinks on Linux: Jain's index (Jain, Chiu, Hawe,
               DEC-TR-301, 1984), and that of twenty flows of Linux' beside

The wire is that of drivers/nic/link; losses are drawn from a seed, each by itself, in both directions. Both systems
have CUBIC. Receivers on our side compare each byte.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...drivers.linux import netns
from ...drivers.linux.ethtool import offloads_off
from ...drivers.nic.link.link import ETHERNET_OVERHEAD_BYTES, Link, LinkNic
from ...drivers.nic.link.wire import Wire
from ...drivers.nic.memory import memory_link
from ...drivers.nic.tap.tap import Tap
from ...libos import Runtime, Stepper
from ...runtime.clock import VirtualClock
from ...runtime.errors import CorelaneError
from ..baseline.tcp_sockets import LinuxTcp, bulk
from ..harness import rest
from ..harness.session import Session
from .server import SINK, SOURCE, Servers

GOODPUT, TINY, FAIRNESS = "tcp.loss_goodput", "tcp.tiny_rtt", "tcp.fairness"
FIGURES = (GOODPUT, TINY, FAIRNESS)
CUBIC = "cubic"
FLOWS = 10
LOSS = 0.01
ROUNDS = 3
DELAY_US = 5000.0  # each way
TINY_US = (5.0, 20.0, 50.0)  # round trips
TINY_S = 0.2  # virtual
TINY_BPS = 10e9
SHARED = Link(rate_bps=100e6, overhead_bytes=ETHERNET_OVERHEAD_BYTES, delay_us=DELAY_US, queue_bytes=1 << 17)
BACK = Link(delay_us=DELAY_US)
WARM_FRACTION = 0.25
OPEN_S = 30.0
OTHER_SINK = SINK + 10  # of our flows, on Linux
LEAST_S = 1.0  # of a round: a hundred round trips
SHARE_ROUNDS, SHARE_LEAST_S = 2, 6.0  # flows take hundreds of round trips to share
OURS, LINUX = "goodput, ours", "goodput, Linux to Linux"
TOGETHER, ALONE = "shared link, ours and Linux", "shared link, Linux alone"


def measure(session: Session, seconds: float) -> None:
    """All three."""
    session.settings["wire"] = {"loss": LOSS, "round_trip_ms": 2 * DELAY_US / 1e3, "flows": FLOWS, "congestion": CUBIC}
    _tiny(session)
    why = netns.missing() or ("" if session.baseline else "--no-baseline was given")
    if why:
        for name in (OURS, LINUX, TOGETHER, ALONE):
            session.skip(name, why)
        return
    _goodput(session, 0.5 * seconds)
    _fairness(session, 0.5 * seconds)


def _bits(before: Sequence[int], after: Sequence[int], seconds: float) -> list[float]:
    """Mbit/s of each flow."""
    return [8e-6 * (b - a) / seconds for a, b in zip(before, after, strict=True)]


def _watch(flow_bytes: Callable[[], list[int]], opened: Callable[[], bool], seconds: float) -> list[float]:
    """Mbit/s of each flow, in real time, once all are open and have had WARM_FRACTION of it: one whose SYN is lost
    waits for a second."""
    end = time.monotonic() + OPEN_S
    while not opened():
        if time.monotonic() > end:
            raise CorelaneError(f"open flows over a wire: not all were after {OPEN_S:.0f} s", "is the machine busy?")
        time.sleep(0.01)
    time.sleep(WARM_FRACTION * seconds)
    before, begin = flow_bytes(), time.monotonic()
    time.sleep((1 - WARM_FRACTION) * seconds)
    return _bits(before, flow_bytes(), time.monotonic() - begin)


# Goodput.


def _goodput(session: Session, seconds: float) -> None:
    slot = max(seconds / (2 * ROUNDS), LEAST_S)
    cores = session.two_cores
    arms = {
        OURS: partial(_ours_through, cores, slot, itertools.count(1)),
        LINUX: partial(_linux_through, cores, slot, itertools.count(1)),
    }
    found = session.interleave(arms, ROUNDS)
    for name, flows in found.items():
        sums = [sum(one) for one in flows]
        session.arm(
            name, n=ROUNDS * FLOWS, mbps=statistics.median(sums), runs=sums, least_flow_mbps=min(map(min, flows))
        )
    ours, linux = ([sum(one) for one in found[name]] for name in (OURS, LINUX))
    if all(linux):
        session.ratio_figure(GOODPUT, ours, linux)
    else:
        session.figure(GOODPUT, None, reason="Linux carried nothing in a round: is the machine this busy?")


def _ours_through(cores: tuple[int, int], seconds: float, seeds: Iterator[int]) -> list[float]:
    lossy = Link(loss=LOSS, delay_us=DELAY_US)
    with contextlib.ExitStack() as stack:
        ends = [memory_link(), memory_link()]
        addresses = ("10.80.0.1", "10.80.0.2")
        wire = Wire(ends[0][1], ends[1][1], there=lossy, back=lossy, seed=next(seeds))
        stack.callback(wire.close)
        servers = []
        for (end, _), address, cpu in zip(ends, addresses, cores, strict=True):
            stack.callback(end.close)
            runtime = Runtime(nic=end, poll="block", kthreads=1, cpus=[cpu], address=f"{address}/24")
            stack.callback(runtime.close)
            servers.append(Servers(runtime, check_bytes=True))
            runtime.start()
        wire.start()
        servers[0].connect(addresses[1], SOURCE, FLOWS, receives=True)
        found = _watch(partial(servers[0].flow_bytes, FLOWS), lambda: servers[0].accepted >= FLOWS, seconds)
        _demand_right(servers[0])
        return found


def _demand_right(servers: Servers) -> None:
    if wrong := servers.counts()["wrong"]:
        raise CorelaneError(f"measure bulk over a bad wire: {wrong} pieces had wrong bytes")


def _linux_through(cores: tuple[int, int], seconds: float, seeds: Iterator[int]) -> list[float]:
    rest.demand("Linux through a wire")
    lossy = Link(loss=LOSS, delay_us=DELAY_US)
    with contextlib.ExitStack() as stack:
        spaces, nics = [], []
        for i in (1, 2):
            spaces.append(stack.enter_context(netns.namespace("wire")))
            with spaces[-1].entered():
                # Two names: a tap's MAC addresses follow from its name.
                nics.append(Tap(f"clw{i}", address=f"10.80.0.{i}/24"))
                offloads_off(f"clw{i}")
        wire = Wire(*nics, there=lossy, back=lossy, seed=next(seeds))
        stack.callback(wire.close)
        wire.start()
        flows = _KernelFlows(spaces[0].name, spaces[1].name, "10.80.0.2", FLOWS, cores, seconds)
        stack.callback(flows.close)
        return _watch(flows.bytes, flows.opened, seconds)


class _KernelFlows:
    """Flows from sockets in one namespace to a sink in another, for `seconds` from when all are open."""

    def __init__(
        self, near: str, far: str, address: str, flows: int, cores: tuple[int, int], seconds: float, port: int = SINK
    ) -> None:
        self.flows = flows
        self.sink = LinuxTcp(
            kind="sink", poll="block", cpu=cores[1], netns=far, congestion=CUBIC, address=address, port=port
        )
        self._errors: list[CorelaneError] = []

        def send() -> None:
            try:
                bulk(
                    send=True,
                    cpu=cores[0],
                    seconds=1.2 * seconds,
                    address=address,
                    port=port,
                    connections=flows,
                    netns=near,
                    congestion=CUBIC,
                )
            except CorelaneError as error:
                self._errors.append(error)

        self._thread = threading.Thread(target=send)
        self._thread.start()

    def opened(self) -> bool:
        """Whether all are. Raises CorelaneError if they cannot be."""
        if self._errors:
            raise self._errors[0]
        return self.sink.stats()["accepted"] >= self.flows

    def bytes(self) -> list[int]:
        """Bytes that came by each."""
        return self.sink.flow_bytes(self.flows)

    def close(self) -> None:
        """Wait for the sender's end, and stop."""
        self._thread.join()
        self.sink.close()


# Tiny round trips.


def _tiny(session: Session) -> None:
    kept: list[float] = []
    for rtt_us in TINY_US:
        session.say(f"1 % loss at a round trip of {rtt_us:g} us")
        clean, lossy = (_virtual(rtt_us, loss) for loss in (0.0, LOSS))
        kept.append(sum(lossy) / sum(clean) if sum(clean) else 0.0)
        least = len(lossy) * min(lossy) / sum(lossy) if sum(lossy) else 0.0
        name = f"round trip of {rtt_us:g} us, virtual"
        row = {"clean_mbps": sum(clean), "lossy_mbps": sum(lossy), "least_flow_over_mean": least}
        session.arm(name, n=len(lossy), **row)
        if least == 0:
            session.note(f"at a round trip of {rtt_us:g} us a flow stood still for {TINY_S / 2:g} virtual s")
    session.figure(TINY, min(kept), runs=kept)


def _virtual(rtt_us: float, loss: float) -> list[float]:
    """Mbit/s by a virtual clock, in the second half of the time, of each flow that was open by then: one whose SYN is
    lost waits for a second (RFC 6298, section 2.1), whatever the round trip is."""
    link = Link(rate_bps=TINY_BPS, overhead_bytes=ETHERNET_OVERHEAD_BYTES, delay_us=rtt_us / 2, loss=loss)
    clock = VirtualClock()
    a, b = memory_link(clock=clock, ipv4=("10.80.0.1", "10.80.0.2"), ipv4_prefix=24)
    with (
        LinkNic(a, rx=link, tx=link) as near,
        b,
        Runtime(nic=near) as client,
        Runtime(nic=b) as server,
        Stepper(clock) as stepper,
    ):
        receivers, senders = Servers(client, check_bytes=True), Servers(server)
        stepper.add(client)
        stepper.add(server)
        receivers.connect("10.80.0.2", SOURCE, 1, receives=True)  # alone: the others' SYNs shall not wait for ARP
        stepper.run(TINY_S / 100)
        receivers.connect("10.80.0.2", SOURCE, FLOWS - 1, receives=True)
        stepper.run(TINY_S / 2)
        opened = min(receivers.counts()["accepted"], FLOWS)
        before = receivers.flow_bytes(opened)
        stepper.run(TINY_S / 2)
        found = _bits(before, receivers.flow_bytes(opened), TINY_S / 2)
        _demand_right(receivers)
        client.stop()
        server.stop()
        del senders
    return found


# Fairness.


def jain(values: Sequence[float]) -> float:
    """1: all are equal; 1 / n: one has all."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


@contextlib.contextmanager
def _bottleneck() -> Iterator[tuple[Any, Any, Any]]:
    """A bridge in one namespace, a tap in another, and a wire of SHARED between them. Gives both namespaces and a NIC
    that is a port of the bridge, besides Linux itself (10.80.0.1)."""
    with contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(netns.namespace("share")) for _ in range(2))
        near.ip("link", "add", "clbr", "type", "bridge")
        near.ip("address", "add", "10.80.0.1/24", "dev", "clbr")
        near.ip("link", "set", "clbr", "up")
        with near.entered():
            uplink, ours = (Tap(name) for name in ("clup", "clours"))
            offloads_off("clup")
        stack.callback(ours.close)
        for name in ("clup", "clours"):
            near.ip("link", "set", name, "master", "clbr")
        with far.entered():
            end = Tap("clend", address="10.80.0.2/24")
            offloads_off("clend")
        wire = Wire(uplink, end, there=SHARED, back=BACK)
        stack.callback(wire.close)
        wire.start()
        yield near, far, ours


def _share(cores: tuple[int, int], with_ours: bool, seconds: float) -> list[float]:
    """Mbit/s of 2 FLOWS flows, ours first."""
    rest.demand("Linux through a wire")
    with contextlib.ExitStack() as stack:
        near, far, port = stack.enter_context(_bottleneck())
        kernel = FLOWS if with_ours else 2 * FLOWS
        linux = _KernelFlows(near.name, far.name, "10.80.0.2", kernel, cores, seconds)
        stack.callback(linux.close)
        if not with_ours:
            return _watch(linux.bytes, linux.opened, seconds)
        runtime = Runtime(nic=port, poll="block", kthreads=1, cpus=[cores[1]], address="10.80.0.3/24")
        stack.callback(runtime.close)
        servers = Servers(runtime)
        runtime.start()
        sink = LinuxTcp(
            kind="sink",
            poll="block",
            address="10.80.0.2",
            port=OTHER_SINK,
            cpu=cores[1],
            netns=far.name,
            congestion=CUBIC,
        )
        stack.callback(sink.close)
        servers.connect("10.80.0.2", OTHER_SINK, FLOWS, receives=False)
        return _watch(
            lambda: sink.flow_bytes(FLOWS) + linux.bytes(),
            lambda: linux.opened() and sink.stats()["accepted"] >= FLOWS,
            seconds,
        )


def _fairness(session: Session, seconds: float) -> None:
    slot = max(seconds / (2 * SHARE_ROUNDS), SHARE_LEAST_S)
    arms = {
        TOGETHER: partial(_share, session.two_cores, True, slot),
        ALONE: partial(_share, session.two_cores, False, slot),
    }
    found = session.interleave(arms, SHARE_ROUNDS)
    for name, flows in found.items():
        halves = [statistics.median(sum(one[half]) for one in flows) for half in (slice(FLOWS), slice(FLOWS, None))]
        index = [jain(one) for one in flows]
        first = {"ours_mbps": halves[0], "linux_mbps": halves[1]} if name == TOGETHER else {"linux_mbps": sum(halves)}
        session.arm(name, n=SHARE_ROUNDS * 2 * FLOWS, jain=statistics.median(index), **first)
    index, alone = ([jain(one) for one in found[name]] for name in (TOGETHER, ALONE))
    beside = {"twenty flows of Linux": statistics.median(alone)}
    session.figure(FAIRNESS, statistics.median(index), runs=index, beside=beside)
