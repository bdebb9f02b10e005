"""The engine's accounting under a fake clock: intended times, lateness, phases, what is lost, what is wrong."""

from __future__ import annotations

import math

import pytest
from cltest.fakeload import FakeLoad, echo, swap, with_payload

from corelane.drivers.nic.loadgen.loadgen import Bursty, Closed, Echo, Limits, Memcached, Phase, Source
from corelane.runtime.errors import CorelaneError

MS = 1_000_000


def run_to_end(fake: FakeLoad) -> None:
    """Let the drain's time pass."""
    fake.now += 100 * MS
    fake.poll()
    assert not fake.load.running


def balances(result) -> None:
    assert result.offered == result.sent + result.dropped
    assert result.sent == result.answered + result.unanswered
    assert result.latency.count == result.offered
    assert result.latency.infinite == result.offered - result.answered


def test_uniform_arrivals_are_due_at_their_times():
    fake = FakeLoad(Echo(), arrivals="uniform")
    fake.start(Phase(0.001, 1e6))
    times = []
    for _ in range(2_000):
        times += [fake.now] * len(fake.poll())
        fake.now += 500
    start = times[0] - 1000
    assert times == [start + 1000 * k for k in range(1, 1000)]
    run_to_end(fake)


@pytest.mark.parametrize("arrivals", ["poisson", "uniform", Bursty(16, 0.0), Bursty(16, 0.3)])
@pytest.mark.parametrize("rate", [1e3, 1e6, 7.77e6])
def test_the_offered_rate_is_the_one_asked_for(arrivals, rate):
    fake = FakeLoad(Echo(), arrivals=arrivals, seed=3, limits=Limits(drain_s=0.001))
    seconds = min(0.2, 3e5 / rate)
    fake.start(Phase(seconds, rate))
    fake.now += int(seconds * 1e9) + 200 * MS  # beyond the drain: all that was due is counted, and dropped
    fake.poll()
    result = fake.load.result()
    spread = 6 * math.sqrt(seconds * rate * (1 if isinstance(arrivals, str) else 32)) + 1
    assert abs(result.offered - seconds * rate) <= spread
    assert result.dropped == result.offered - result.sent
    balances(result)


def test_latency_is_the_servers_time_when_nothing_is_late():
    fake = FakeLoad(Echo())
    fake.start(Phase(0.01, 1e5))
    fake.serve(echo, fake.now + 20 * MS, step_ns=100, delay_ns=5_000)
    result = fake.load.result()
    balances(result)
    assert result.answered == result.sent == result.offered > 800
    assert result.late == result.wrong == result.dropped == 0
    assert 5.0 <= result.percentile_us(0) <= result.percentile_us(100) <= 5.21


def test_a_stall_is_charged_to_every_request_that_was_due_in_it():
    """1000 requests at 1 us distance, the generator is not polled for the middle 400 us: the requests of that time are
    sent after it, counted as late, and their latency begins at the intended time."""
    fake = FakeLoad(Echo(), arrivals="uniform", limits=Limits(late_us=10))
    fake.start(Phase(0.001, 1e6))
    begin = fake.now
    fake.serve(echo, begin + 300_000, step_ns=100)
    fake.now = begin + 700_000
    fake.serve(echo, begin + 60 * MS, step_ns=100)
    result = fake.load.result()
    balances(result)
    assert result.answered == result.offered == 999
    assert result.late == pytest.approx(390, abs=2)
    assert result.late_max_us == pytest.approx(400, abs=2)
    # The latencies of those are 400, 399, ... 0 us, all others under 0.2 us: 40 % lie evenly up to 400 us.
    for percent, expected in ((59, 0.2), (80, 200), (90, 300), (99.9, 399)):
        assert result.percentile_us(percent) == pytest.approx(expected, rel=0.02, abs=2)


def test_without_buffers_requests_are_late_and_not_lost():
    fake = FakeLoad(Echo(), arrivals="uniform")
    fake.start(Phase(0.001, 1e5))
    fake.now += 500_000
    for _ in range(3):
        assert fake.poll(buffers=0) == []
        fake.now += 10_000
    assert len(fake.poll(buffers=7)) == 7
    assert len(fake.poll()) == 46
    run_to_end(fake)
    result = fake.load.result()
    balances(result)
    assert result.sent == 53
    assert result.dropped == result.offered - 53
    assert result.late == 51  # those at most 10 us late are in time


def test_what_is_never_answered_is_infinite():
    fake = FakeLoad(Echo(), seed=5)
    fake.start(Phase(0.01, 1e5))
    count = [0]

    def one_in_ten_is_lost(frame: bytes) -> bytes | None:
        count[0] += 1
        return echo(frame) if count[0] % 10 else None

    fake.serve(one_in_ten_is_lost, fake.now + 100 * MS, step_ns=500)
    assert not fake.load.running
    result = fake.load.result()
    balances(result)
    assert result.unanswered == result.sent // 10
    assert result.percentile_us(89) < 1
    assert result.percentile_us(91) == math.inf
    assert result.latency.max_us == math.inf


def test_wrong_echoes_are_no_answers():
    fake = FakeLoad(Echo(payload_bytes=100))
    fake.start(Phase(0.001, 1e5))
    frames: list[bytes] = []
    while len(frames) < 20:
        fake.now += 1000
        frames += fake.poll()
    good = [swap(bytearray(f)) for f in frames]
    wrong = [bytearray(g) for g in good]
    wrong[0][60] ^= 1  # a byte of the pattern
    wrong[1][-1] ^= 0x80
    wrong[2] = bytearray(with_payload(good[2], good[2][42:-1]))  # a byte too short
    wrong[3][42:46] = good[4][42:46]  # another request's number, on this one's port
    fake.receive(*(bytes(w) for w in wrong[:4]))
    assert fake.load.results()[0].wrong == 4
    foreign = [bytearray(g) for g in good[5:9]]
    foreign[0][46] ^= 1  # the magic
    foreign[1][29] ^= 1  # from another address
    foreign[2][35] ^= 1  # from another port
    foreign[3][36] ^= 0x80  # to none of our ports
    fake.receive(*(bytes(f) for f in foreign), good[9][:41], good[10][:20], b"\0" * 14)
    assert fake.load.other()["foreign"] == 7
    fake.receive(good[11], good[11])
    assert fake.load.other()["stray"] == 1
    fake.receive(good[0])
    assert fake.load.other()["stray"] == 2
    run_to_end(fake)
    result = fake.load.result()
    assert result.answered == 1
    balances(result)


def test_phases_have_their_own_rates_and_counts():
    fake = FakeLoad(Echo(), arrivals="uniform")
    phases = [
        Phase(0.001, 1e5, measured=False, label="warm-up"),
        Phase(0.002, 1e6),
        Phase(0.001, 0),
        Phase(0.001, 5e5, label="last"),
    ]
    fake.start(*phases)
    fake.serve(echo, fake.now + 60 * MS, step_ns=100, delay_ns=2_000)
    assert not fake.load.running
    results = fake.load.results()
    assert [r.sent for r in results] == [99, 1999, 0, 499]
    assert [r.answered for r in results] == [99, 1999, 0, 499]
    assert [r.latency.count for r in results] == [0, 1999, 0, 499]
    assert results[3].label == "last"
    total = fake.load.result()
    balances(total)
    assert total.offered == 2498
    assert len(total.windows) == 3
    assert total.seconds == pytest.approx(0.004)


def test_late_answers_belong_to_the_phase_of_their_request():
    fake = FakeLoad(Echo(), arrivals="uniform")
    fake.start(Phase(0.001, 1e5), Phase(0.001, 1e5))
    fake.serve(echo, fake.now + 60 * MS, step_ns=100, delay_ns=1_500_000)
    first, second = fake.load.results()
    assert (first.answered, second.answered) == (99, 99)
    assert first.percentile_us(50) == pytest.approx(1500, rel=0.01)


def test_overload_is_sent_late_and_the_rest_is_dropped():
    """Offered 1 M/s, polled so slowly that 100 k/s get out: during the run and the drain, and no longer."""
    fake = FakeLoad(Echo(), arrivals="uniform", limits=Limits(drain_s=0.005))
    fake.start(Phase(0.01, 1e6))
    begin = fake.now
    while fake.load.running:
        fake.receive(*(echo(f) for f in fake.poll(most=1)))
        fake.now += 10_000
        assert fake.now < begin + 100 * MS
    result = fake.load.result()
    balances(result)
    assert result.offered == 9_999
    assert result.sent == pytest.approx(1500, abs=70)
    assert result.late > 0.98 * result.sent - 70
    assert result.span_s == pytest.approx(0.015, rel=0.02)
    assert result.achieved_rps == pytest.approx(1e5, rel=0.06)
    assert result.percentile_us(50) == math.inf


def test_an_aborted_run_has_results():
    fake = FakeLoad(Echo())
    fake.start(Phase(10, 1e5))
    fake.serve(echo, fake.now + 5 * MS)
    fake.load.abort()
    fake.poll()
    assert not fake.load.running
    result = fake.load.result()
    balances(result)
    assert result.answered > 300


def test_runs_follow_each_other_on_one_engine():
    fake = FakeLoad(Echo(), arrivals="uniform")
    for _ in range(3):
        fake.start(Phase(0.001, 1e5))
        with pytest.raises(CorelaneError, match="under way"):
            fake.load.start([Phase(1, 1)])
        frames = []
        fake.serve(lambda f, kept=frames: kept.append(echo(f)) or kept[-1], fake.now + 100 * MS)
        assert fake.load.result().answered == 99
        fake.receive(*frames)  # after the run: nobody waits for them
        assert fake.load.result().answered == 99


def test_a_slot_that_is_overtaken_stays_unanswered():
    fake = FakeLoad(Echo(), arrivals="uniform", limits=Limits(outstanding=256))
    fake.start(Phase(0.01, 1e5))
    frames: list[bytes] = []
    while len(frames) < 300:
        fake.now += 1000
        frames += fake.poll()
    fake.receive(*(echo(f) for f in frames))
    assert fake.load.other()["stray"] == 300 - 256
    assert fake.load.results()[0].answered == 256
    run_to_end(fake)
    balances(fake.load.result())


def test_closed_arrivals_keep_a_window():
    fake = FakeLoad(Echo(), arrivals=Closed(10))
    fake.start(Phase(0.001, 1.0))
    first = fake.poll()
    assert len(first) == 10
    assert fake.poll() == []
    fake.receive(*(echo(f) for f in first))
    fake.serve(echo, fake.now + 100 * MS, delay_ns=10_000)
    assert not fake.load.running
    result = fake.load.result()
    assert not result.open_loop
    assert result.answered > 100
    balances(result)


@pytest.mark.parametrize("flows", [1, 8, 64])
def test_flows_and_addresses_take_turns(flows):
    fake = FakeLoad(Echo(), source=Source(flows=flows, ips=min(flows, 4), ip="10.77.1.0", first_port=30000))
    fake.start(Phase(0.01, 1e6))
    frames: list[bytes] = []
    while len(frames) < 2 * flows:
        fake.now += 1000
        frames += fake.poll()
    ports = {int.from_bytes(f[34:36], "big") for f in frames}
    assert ports == {30000 + k for k in range(flows)}
    assert {f[29] for f in frames} == set(range(min(flows, 4)))
    fake.receive(*(echo(f) for f in frames))
    assert fake.load.results()[0].answered == len(frames)


@pytest.mark.parametrize("payload_bytes", [8, 22, 23, 64, 1472])
def test_checksums_and_lengths_on_the_wire(payload_bytes):
    from corelane.drivers._native import lib

    fake = FakeLoad(Echo(payload_bytes=payload_bytes), checksum=True)
    fake.start(Phase(0.001, 1e6))
    fake.now += 50_000
    frames = fake.poll()
    assert len(frames) > 20
    for f in frames:
        assert len(f) == 42 + payload_bytes
        assert lib.cl_net_checksum(f[14:34], 20) == 0
        src, dst = int.from_bytes(f[26:30], "big"), int.from_bytes(f[30:34], "big")
        assert f[40:42] != b"\0\0"
        assert lib.cl_net_udp_checksum_ok(src, dst, f[34:], len(f) - 34)


def arp(op: int, mac: str, ip: bytes, target: bytes) -> bytes:
    sender = bytes.fromhex(mac.replace(":", ""))
    head = b"\xff" * 6 + sender + b"\x08\x06" + b"\0\x01\x08\0\x06\x04" + op.to_bytes(2, "big")
    return head + sender + ip + b"\0" * 6 + target


def test_the_servers_address_is_asked_for():
    fake = FakeLoad(Echo(), server_mac=None, source=Source(ip="10.0.0.1"), server_ip="10.0.0.2")
    fake.load.start([Phase(0.001, 1e6)])
    (question,) = fake.poll()
    assert question[:6] == b"\xff" * 6
    assert question[20:22] == b"\0\x01"
    assert question[28:32] == bytes([10, 0, 0, 1])
    assert question[38:42] == bytes([10, 0, 0, 2])
    assert fake.poll() == []
    fake.now += 150 * MS
    assert len(fake.poll()) == 1
    fake.receive(arp(2, "02:aa:00:00:00:99", bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1])))
    fake.poll()
    fake.now += MS
    frames = fake.poll()
    assert frames
    assert all(f[:6] == b"\x02\xaa\0\0\0\x99" for f in frames)
    assert fake.load.other()["arp_requests"] == 2


def test_an_address_that_nobody_has_fails_the_run():
    fake = FakeLoad(Echo(), server_mac=None, limits=Limits(give_up_s=1))
    fake.load.start([Phase(0.001, 1e6)])
    for _ in range(12):
        fake.poll()
        fake.now += 100 * MS
    with pytest.raises(CorelaneError, match="ARP"):
        fake.load.wait(1)
    assert fake.load.result().sent == 0


def test_questions_for_its_own_addresses_are_answered():
    fake = FakeLoad(Echo(), source=Source(ip="10.0.0.4", ips=4))
    ask = bytes([10, 0, 0, 2])
    for last, answered in ((4, 1), (7, 1), (8, 0), (3, 0)):
        fake.receive(arp(1, "02:00:00:00:00:77", ask, bytes([10, 0, 0, last])))
        replies = fake.poll()
        assert len(replies) == answered
        for reply in replies:
            assert reply[:6] == b"\x02\0\0\0\0\x77"
            assert reply[20:22] == b"\0\x02"
            assert reply[28:32] == bytes([10, 0, 0, last])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": Source(flows=3)}, "flows must be a power of two"),
        ({"source": Source(first_port=65500)}, "flows must be a power of two"),
        ({"source": Source(ips=128)}, "ips must be"),
        ({"limits": Limits(outstanding=100)}, "outstanding must be"),
        ({"arrivals": "sometimes"}, "arrivals is 'sometimes'"),
        ({"arrivals": Bursty(4, 2.0)}, "duty from 0 to 1"),
        ({"traffic": Echo(7)}, "payload_bytes must be"),
        ({"traffic": Echo(1473)}, "payload_bytes must be"),
        ({"traffic": Memcached(key_bytes=251)}, "memcached's limit"),
        ({"traffic": Memcached(keys=17, key_bytes=1)}, "cannot be told apart"),
        ({"traffic": Memcached(keys=10, value_bytes=2000)}, "does not fit into a datagram"),
        ({"traffic": Memcached(keys=10, get_fraction=1.5)}, "get_fraction"),
        ({"traffic": Memcached(keys=10, zipf=-1)}, "zipf"),
        ({"server_mac": "02:00"}, "not a MAC address"),
        ({"source": Source(ip="10.0.0")}, "not an IPv4 address"),
        ({"traffic": Memcached(keys=-3)}, "the limits"),
        ({"source": Source(mac="02:00")}, "not a MAC address"),
        ({"server_port": 65536}, "the limits"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(CorelaneError, match=message):
        FakeLoad(options.pop("traffic", Echo()), **options)


@pytest.mark.parametrize(
    ("group", "options", "says"),
    [
        (Source, {"flows": -1}, "Source: flows: is -1 (expected a whole number from 1 to 16384)"),
        (Source, {"ips": 0}, "Source: ips: is 0"),
        (Source, {"first_port": 0}, "Source: first_port: is 0"),
        (Source, {"ip": None}, "Source: ip: is None"),
        (Source, {"mac": b"mac"}, "Source: mac: is b'mac'"),
        (Limits, {"outstanding": -1}, "Limits: outstanding: is -1"),
        (Limits, {"late_us": -1}, "Limits: late_us: is -1"),
        (Limits, {"drain_s": math.nan}, "Limits: drain_s: is nan (expected a number from 0 to 3600)"),
        (Limits, {"give_up_s": math.inf}, "Limits: give_up_s: is inf"),
    ],
)
def test_a_group_has_limits(group, options, says):
    with pytest.raises(CorelaneError) as refused:
        group(**options)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("phase", [Phase(0, 1), Phase(1, -1), Phase(1, 2e9), Phase(1, 1e-9), Phase(1, math.nan)])
def test_impossible_phases_are_refused(phase):
    fake = FakeLoad(Echo())
    with pytest.raises(CorelaneError, match="a phase lasts"):
        fake.load.start([phase])
    for seconds in (-1.0, math.nan, 1e9):
        with pytest.raises(CorelaneError, match="give 0 to 86400"):
            fake.load.start([Phase(seconds, 1)])
    with pytest.raises(CorelaneError, match="nothing to run"):
        fake.load.start()


def test_phases_of_a_series_share_a_histogram_and_nothing_is_counted_twice():
    """A load that jumps tenfold and back, three times over: the two windows have a histogram each."""
    fake = FakeLoad(Echo(), arrivals="uniform")
    pattern = [Phase(0.001, 1e5, series=1), Phase(0.001, 1e6, series=2), Phase(0.0005, 1e5, measured=False)]
    fake.start(*pattern * 3)
    fake.serve(echo, fake.now + 80 * MS, step_ns=100, delay_ns=3_000)
    parts = fake.load.results()
    assert [p.offered for p in parts] == [99, 999, 49] * 3
    series = fake.load.series()
    assert {number: h.count for number, h in series.items()} == {1: 3 * 99, 2: 3 * 999}
    assert 3.0 <= series[2].percentile_us(0) <= series[2].percentile_us(100) <= 3.21
    whole = fake.load.result()
    assert whole.latency.count == whole.offered == 3 * (99 + 999)


def test_the_load_jumps_from_one_request_to_the_next():
    fake = FakeLoad(Echo(), arrivals="uniform")
    fake.start(Phase(0.0001, 1e5, series=1), Phase(0.0001, 1e6, series=2))
    start, times = fake.now, []
    for _ in range(2_200):
        times += [fake.now - start] * len(fake.poll())
        fake.now += 100
    assert [t // 1000 for t in times] == [*range(10, 100, 10), *range(101, 200)]


def test_lost_requests_of_a_series_are_infinite_in_it():
    fake = FakeLoad(Echo(), arrivals="uniform")
    fake.start(Phase(0.001, 1e5, series=7), Phase(0.001, 1e5, series=7))
    for _ in range(20_000):
        fake.poll()
        fake.now += 100
    run_to_end(fake)
    (latency,) = fake.load.series().values()
    assert latency.count == latency.infinite == 2 * 99


def test_long_requests_have_a_histogram_of_their_own():
    """The server answers short ones at once, long ones after 50 us, as their payload says."""
    fake = FakeLoad(Echo(service_us=1, long_us=50, long_fraction=0.25), arrivals="uniform", seed=5)
    fake.start(Phase(0.01, 1e5))
    begin, waiting, kinds = fake.now, [], {1000: 0, 50_000: 0}
    for _ in range(120_000):
        for frame in fake.poll():
            ns = int.from_bytes(frame[50:54], "little")
            kinds[ns] += 1
            waiting.append((fake.now + ns, frame))
        for at, frame in [w for w in waiting if w[0] <= fake.now]:
            fake.receive(swap(bytearray(frame)))
            waiting.remove((at, frame))
        fake.now += 100
    assert fake.now > begin
    run_to_end(fake)
    result = fake.load.result()
    balances(result)
    assert result.answered == result.sent == sum(kinds.values())
    assert (result.short.count, result.long.count) == (kinds[1000], kinds[50_000])
    assert kinds[50_000] == pytest.approx(250, abs=60)
    assert result.short.percentile_us(100) < 2 < 50 <= result.long.percentile_us(0)


def test_a_long_request_answered_as_a_short_one_is_wrong():
    fake = FakeLoad(Echo(service_us=1, long_us=50, long_fraction=1.0), arrivals="uniform")
    fake.start(Phase(0.001, 1e4))
    sent = 0
    for _ in range(12_000):
        for frame in fake.poll():
            sent += 1
            fake.receive(swap(bytearray(frame[:50] + (1000).to_bytes(4, "little") + frame[54:])))
        fake.now += 100
    run_to_end(fake)
    result = fake.load.result()
    assert (result.wrong, result.answered) == (sent, 0)
    assert result.long.infinite == sent > 0


@pytest.mark.parametrize(
    ("traffic", "reason"),
    [
        (Echo(payload_bytes=12, service_us=1), "16 at least"),
        (Echo(long_fraction=1.5), "long_fraction must be from 0 to 1"),
    ],
)
def test_refusals_of_service_times(traffic, reason):
    with pytest.raises(CorelaneError, match=reason):
        FakeLoad(traffic)
