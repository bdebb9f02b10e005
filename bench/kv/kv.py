"""The key-value store under memcached's traffic: a million keys of 16 bytes, values of 64, Zipf 0.99.

Three parts in one session: the peak of one worker core, interleaved with stock memcached on one thread; latency against
load; and value sizes from 8 bytes to what a datagram carries, our stack on AF_XDP against the same command layer behind
a kernel UDP socket, both over a veth pair. Arms: embedded (a runtime on a software link), iokernel (the loop on one
core, the store's process on the other), and as root what needs a veth pair, loaded over AF_XDP by the same generator.
The figure over memcached compares our memory link with its veth pair; beside it stands the ratio with both on a veth
pair. Beside the peak stands its bound at each distance of the cores: a server that touches the cache lines of a GET and
does nothing else (lines.h). Without root memcached is loaded over loopback, by the same generator on a kernel socket:
the settings say which.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...apps.kv import Store
from ...apps.kv import app as kv_app
from ...drivers.linux import netns
from ...drivers.nic.loadgen.loadgen import Loadgen, Source
from ...drivers.nic.loadgen.loadgen import Memcached as Traffic
from ...libos import Runtime
from ..baseline import memcached
from ..baseline.sockets import CLIENT_MAC, SERVER_MAC, LinuxUdp, socket_nic
from ..harness import rest, rig
from ..harness.distance import FAR, NEAR, ByDistance
from ..harness.load import Load
from ..harness.numbers import pairwise
from ..harness.openloop import NEAR_STEP, Curve, Measure, guess_peak, search_peak
from ..harness.peaks import START_SHARE, find_peaks
from ..harness.plot import Canvas, searched_curves
from ..harness.session import Session
from ..harness.stops import Counts
from .lines import Lines

SUMMARY = (
    "key-value store: GETs through one core, latency against load, value sizes; memcached and kernel UDP beside it"
)
# The host may put the two cores near to each other or far apart: the peaks of both states stand apart in the report.
FIGURES = ("kv.get_rps_per_core", "kv.over_memcached_udp")

GOALS = {NEAR: 6e6, FAR: 4e6}  # GETs/s through one core
KEYS = 1_000_000
FEW_KEYS, SHORT_S = 10_000, 3.0  # storing a million keys three times takes longer than a short run
PORT = 11211
MEMORY_BYTES = 256 << 20
SIZES = (8, 64, 256, 512, 1024, 1300)
SWEEP_KEYS = 10_000
SIZE_ROUNDS, SIZE_TRIES = 2, 12
BATCHES, BATCH_ROUNDS = (1, 32), 3  # datagrams a system call of the kernel's socket
MEMCACHED, OVER_AF_XDP = "memcached UDP", "embedded, AF_XDP"
FLOOR = "the lines of a GET alone"
ONE_LINK = "both on a veth pair"  # beside the figure that compares our memory link with memcached's veth pair
LINKS = {
    "embedded": "memory link: generator and server in one process",
    "iokernel": "the generator is the uplink of the iokernel; the server is another process",
    OVER_AF_XDP: "generator and server each on AF_XDP, on a veth pair",
    FLOOR: "as embedded",
}
FRACTIONS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument(
        "--keys", type=int, help=f"keys, all of them preloaded ({KEYS}; {FEW_KEYS} with less than {SHORT_S:g} seconds)"
    )
    parser.add_argument("--value-bytes", type=int, default=64, help="bytes of a value (%(default)s)")


def run(session: Session) -> None:
    """Measure all three parts."""
    keys = getattr(session.options, "keys", None) or (FEW_KEYS if session.seconds < SHORT_S else KEYS)
    traffic = Traffic(keys=int(keys), value_bytes=int(getattr(session.options, "value_bytes", 64)))
    if traffic.keys < KEYS or traffic.value_bytes != 64:
        session.note(f"the figures are meant for {KEYS} keys and values of 64 bytes; this run took less or other ones")
    session.settings |= {
        "message": f"one GET of a {traffic.key_bytes}-byte key and its {traffic.value_bytes}-byte value",
        "keys": traffic.keys,
        "zipf": traffic.zipf,
        "memory_bytes": MEMORY_BYTES,
        "checksums": rig.CHECKSUMS,
        "links": dict(LINKS),
    }
    cores = session.two_cores
    with contextlib.ExitStack() as stack:
        embedded = stack.enter_context(rig.embedded(bind, cores, traffic=traffic, port=PORT))
        words = ["kv", "--option", f"memory_bytes={MEMORY_BYTES}"]
        attached = stack.enter_context(rig.iokernel(words, cores, traffic=traffic, port=PORT))
        arms: dict[str, Measure] = {"embedded": embedded.load.measure, "iokernel": attached.load.measure}
        explain: dict[str, Measure] = {"embedded": embedded.load.explain, "iokernel": attached.load.explain}
        add_memcached(session, arms, stack, traffic, explain)
        floor = stack.enter_context(Lines(traffic, cores))
        by_distance = ByDistance(session, GOALS)
        found = peaks(session, arms | {FLOOR: floor.measure}, by_distance)
        carried = {name: statistics.median(rates) for name, rates in found.items()}
        session.curves(arms, carried, seconds=0.25 * session.seconds, fractions=FRACTIONS, explain=explain)
        by_distance.complete()
    by_distance.report()
    figure = "kv.get_rps_per_core"
    bounds = {f"{FLOOR}, {where}": rps for where, rps in by_distance.medians(FLOOR).items()}
    beside = by_distance.beside("embedded") | bounds
    session.figure(figure, carried["embedded"], runs=found["embedded"], beside=beside)
    session.note(f"through an iokernel: {carried['iokernel']:,.0f} GETs/s through the application's core")
    sizes(session)


def bind(runtime: Runtime) -> kv_app.KvService:
    """The store on a runtime; it is closed with the rig."""
    return kv_app.setup(runtime, kv_app.Options(port=PORT, memory_bytes=MEMORY_BYTES))


def why_no_link(session: Session) -> str:
    """Why there are no arms over a veth pair; "" if there are."""
    if not session.baseline:
        return "--no-baseline was given"
    return netns.missing() or ""


def add_memcached(
    session: Session,
    arms: dict[str, Measure],
    stack: contextlib.ExitStack,
    traffic: Traffic,
    explain: dict[str, Measure],
) -> None:
    """Stock memcached with one thread on the server's core, and ours on such a link; or why memcached is left out.

    Both sleep when they are not asked. explain: gets what says why their curves stop.
    """
    why = memcached.missing() if session.baseline else "--no-baseline was given"
    if why:
        session.skip(MEMCACHED, why)
    elif why_no_link(session):
        session.settings["links"][MEMCACHED] = f"kernel UDP on loopback, since this {why_no_link(session)}"
        load = stack.enter_context(on_loopback(session.two_cores, traffic))
        arms[MEMCACHED], explain[MEMCACHED] = load.measure, load.explain
    else:
        session.settings["links"][MEMCACHED] = "generator on AF_XDP, server on the kernel's UDP, on a veth pair"
        session.settings["links"][OVER_AF_XDP] = LINKS[OVER_AF_XDP]
        link = rig.LinuxLink(stack, session.two_cores, traffic=traffic, port=PORT)
        server = memcached.Memcached(
            memory_mib=1024,
            address=link.far.address,
            netns=link.far.namespace.name,
            port=PORT,
            cpu=session.two_cores[1],
        )
        stack.enter_context(server)
        link.counted_by(partial(rig.counts_of_linux, server))
        arms[MEMCACHED], explain[MEMCACHED] = link.ask, link.load.explain
        ours = rig.LinuxLink(stack, session.two_cores, traffic=traffic, port=PORT)
        ours.counted_by(stack.enter_context(on_af_xdp(ours.far, session.two_cores[1])))
        arms[OVER_AF_XDP], explain[OVER_AF_XDP] = ours.ask, ours.load.explain


@contextlib.contextmanager
def on_loopback(cores: tuple[int, int], traffic: Traffic) -> Iterator[Load]:
    """memcached loaded by the same generator, whose frames leave by a kernel UDP socket."""
    ip, port = rig.CLIENT_IP, 20000
    with (
        memcached.Memcached(memory_mib=1024, cpu=cores[1]) as server,
        Loadgen(
            traffic,
            source=Source(mac=CLIENT_MAC, ip=ip, first_port=port, flows=1),
            server_ip=server.address,
            server_mac=SERVER_MAC,
            server_port=server.udp_port,
        ) as generator,
        socket_nic(server.address, server.udp_port, ip, port) as nic,
    ):
        generator.start_client(nic, cpu=cores[0])
        try:
            yield Load(generator, counts=partial(rig.counts_of_linux, server))
        finally:
            generator.stop_client()


def peaks(session: Session, arms: dict[str, Measure], by_distance: ByDistance) -> dict[str, list[float]]:
    """The highest loads that each arm carries, one a round. Ratios are taken pair by pair."""
    for name, measure in arms.items():
        session.say(f"storing the keys: {name}")
        measure(1000, 0.05)
    searched = find_peaks(
        session, arms, seconds=0.4 * session.seconds, by_distance=by_distance, across=("embedded", "iokernel", FLOOR)
    )
    found = {name: [curve.peak_rps for curve in curves] for name, curves in searched.items()}
    beside = compare_on_one_link(session, found[OVER_AF_XDP], found[MEMCACHED]) if OVER_AF_XDP in found else {}
    compare_with_memcached(session, found["embedded"], found.get(MEMCACHED, []), beside)
    return found


def compare_with_memcached(
    session: Session, ours: list[float], theirs: list[float], beside: dict[str, float] | None = None
) -> None:
    """The ratio, over the rounds in which both carried a load. beside: the same over one link."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a > 0 and b > 0]
    if pairs:
        session.ratio_figure("kv.over_memcached_udp", [a for a, _ in pairs], [b for _, b in pairs], beside=beside)
    elif theirs:
        session.figure("kv.over_memcached_udp", None, reason="in no round did both carry a load")
    if theirs and len(pairs) < len(ours):
        session.note(
            f"{len(ours) - len(pairs)} of {len(ours)} rounds against memcached left out: a side carried no load"
        )


def compare_on_one_link(session: Session, ours: list[float], theirs: list[float]) -> dict[str, float]:
    """The same ratio with both servers behind a veth pair: what is left when our own link is taken away.

    By its name, for a figure's `beside`; empty if in no round did both carry a load.
    """
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a > 0 and b > 0]
    if not pairs:
        session.note("over the same link: in no round did both carry a load")
        return {}
    ratio = pairwise([a for a, _ in pairs], [b for _, b in pairs])
    session.settings["over_memcached_udp_same_link"] = {"value": ratio.median, "runs": ratio.pairs}
    session.note(f"both over AF_XDP and a veth pair, the same generator: {ratio} times memcached's GETs/s")
    return {ONE_LINK: ratio.median}


# Value sizes: both sides over the same kind of link.


def on_af_xdp(far: netns.Interface, cpu: int) -> contextlib.AbstractContextManager[Callable[[], Counts]]:
    """The store in embedded mode on the far end of the link."""
    return rig.on_af_xdp(far, cpu, bind)


@contextlib.contextmanager
def on_kernel_udp(far: netns.Interface, cpu: int, batch: int = 32) -> Iterator[None]:
    """The same command layer behind a kernel UDP socket that is polled, up to `batch` datagrams a system call."""
    with (
        Store(MEMORY_BYTES) as store,
        LinuxUdp(
            poll="spin",
            cpu=cpu,
            address=far.address,
            netns=far.namespace.name,
            port=PORT,
            batch=batch,
            store=store,
        ),
    ):
        yield


Serve = Callable[[netns.Interface, int], contextlib.AbstractContextManager[object]]


def peak_of(session: Session, serve: Serve, value_bytes: int, guess_rps: float, seconds: float) -> Curve:
    """The peak of a server made for this alone: two that poll would share the core. guess_rps 0: none yet."""
    cores = session.two_cores
    traffic = Traffic(keys=SWEEP_KEYS, value_bytes=value_bytes)
    rest.demand("a peak on a veth pair")
    with contextlib.ExitStack() as stack:
        link = rig.LinuxLink(stack, cores, traffic=traffic, port=PORT)
        stack.enter_context(serve(link.far, cores[1]))
        guess_rps = guess_rps or guess_peak(link.load.measure, seconds=seconds / 2)
        return search_peak(
            link.load.measure, start_rps=START_SHARE * guess_rps, step=NEAR_STEP, seconds=seconds, tries=SIZE_TRIES
        )


def stronger_batch(session: Session, seconds: float) -> int:
    """Datagrams a system call with which the kernel's socket carries more: peaks at 64 bytes, in turns."""
    slot = seconds / len(BATCHES) / BATCH_ROUNDS
    last = dict.fromkeys(BATCHES, 0.0)

    def search(batch: int) -> float:
        last[batch] = peak_of(session, partial(on_kernel_udp, batch=batch), 64, last[batch], slot).peak_rps
        return last[batch]

    bodies = {f"kernel UDP, {batch} a system call": partial(search, batch) for batch in BATCHES}
    rates = dict(zip(BATCHES, session.interleave(bodies, BATCH_ROUNDS).values(), strict=True))
    chosen = max(BATCHES, key=lambda batch: statistics.median(rates[batch]))
    session.settings["kernel_udp_batch"] = {"chosen": chosen, "peaks_rps": rates}
    return chosen


def sizes(session: Session) -> None:
    """GETs a second by value size on both sides, and the size from which the kernel's socket is no slower.

    Two rounds, the second in the opposite order, and one in a short run; each search starts near what the arm carried
    last.
    """
    why = why_no_link(session)
    if why:
        session.skip("value sizes", why)
        return
    batch = stronger_batch(session, 0.05 * session.seconds)
    rounds = SIZE_ROUNDS if session.seconds >= SHORT_S else 1
    slot = 0.25 * session.seconds / len(SIZES) / 2 / rounds
    arms: dict[str, Serve] = {"AF_XDP": on_af_xdp, "kernel UDP": partial(on_kernel_udp, batch=batch)}
    last = dict.fromkeys(arms, 0.0)
    found: dict[str, dict[int, list[Curve]]] = {name: {size: [] for size in SIZES} for name in arms}
    for number in range(rounds):
        backwards = number % 2 == 1
        for size in sorted(SIZES, reverse=backwards):
            session.take_canary()
            for name in sorted(arms, reverse=backwards):
                session.say(f"round {number + 1} of {rounds}, values of {size} bytes: {name}")
                found[name][size].append(peak_of(session, arms[name], size, last[name], slot))
                last[name] = found[name][size][-1].peak_rps or last[name]
    report_sizes(session, found)


def report_sizes(session: Session, found: dict[str, dict[int, list[Curve]]]) -> None:
    """The best point of each size as a row, the medians of the rounds and where they cross in the settings."""
    rates: dict[str, dict[int, float]] = {name: {} for name in found}
    for size in SIZES:
        for name in found:
            curves = found[name][size]
            rates[name][size] = statistics.median(curve.peak_rps for curve in curves)
            best = max((c.peak for c in curves if c.peak), key=lambda p: p.achieved_rps, default=None)
            if best:
                session.point(f"{name}, {size} B", best)["value_bytes"] = size
    both = [size for size in SIZES if rates["kernel UDP"][size] > 0 and rates["AF_XDP"][size] > 0]
    crossed = [size for size in both if rates["kernel UDP"][size] >= rates["AF_XDP"][size]]
    session.settings["value_sizes"] = rates
    session.settings["value_sizes_runs"] = {
        name: {size: [curve.peak_rps for curve in curves] for size, curves in of.items()} for name, of in found.items()
    }
    session.settings["crossover_bytes"] = crossed[0] if crossed else None
    if crossed:
        session.note(f"with values of {crossed[0]} bytes the kernel's UDP socket is no slower")
    elif both:
        session.note(f"no crossover: with values of {both} bytes AF_XDP is ahead of the kernel's UDP socket")


def plot(document: dict[str, Any]) -> Canvas:
    """The curves; peaks are on them, value sizes in the table."""
    return searched_curves(document, "kv GET: latency against load")
