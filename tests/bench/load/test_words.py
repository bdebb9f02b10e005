"""What the words of the command line stand for: targets, workloads, arrivals, limits."""

from __future__ import annotations

import array
import socket
import statistics
from pathlib import Path

import pytest

from corelane.bench.load import arrivals, searching, targets, workloads
from corelane.bench.load.measuring import Plan
from corelane.runtime.errors import CorelaneError


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path"),
    [
        ("memcached://10.0.0.1:11222", "memcached", "10.0.0.1", 11222, "/"),
        ("memcached://cache", "memcached", "cache", 11211, "/"),
        ("redis://localhost/3", "redis", "localhost", 6379, "/3"),
        ("http://a.example/x/y?z=1", "http", "a.example", 80, "/x/y?z=1"),
        ("http://a.example?z=1", "http", "a.example", 80, "/?z=1"),
        ("https://a.example/x", "https", "a.example", 443, "/x"),
        ("rediss://cache/3", "rediss", "cache", 6379, "/3"),
        ("udp://[::1]:9000", "udp", "::1", 9000, "/"),
        ("tcp://h:1", "tcp", "h", 1, "/"),
        ("http://h/a b/\u00e9?{key}%20", "http", "h", 80, "/a%20b/%C3%A9?{key}%20"),
    ],
)
def test_targets(url: str, scheme: str, host: str, port: int, path: str):
    target = targets.parse(url)
    assert (target.scheme, target.host, target.port, target.path) == (scheme, host, port, path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:11211", "does not begin with"),
        ("ftp://x", "does not begin with"),
        ("memcached://", "names no host"),
        ("udp://x", "names no port"),
        ("tcp://x:70000", "no URL"),
        ("tcp://x:y", "no URL"),
        ("redis://x/y", "no number of a database"),
        ("udp://x:1/y", "has no path"),
        ("memcached://x:0", "names no port"),
        ("memcached://x?a=b", "has no query"),
        ("redis://x/0?a=b", "has no query"),
        ("redis://me@x", "a user needs a password"),
        ("memcached://me:secret@x", "knows no users"),
        ("http://me:secret@x/", "a user in the URL is not sent"),
    ],
)
def test_what_is_no_target(url: str, why: str):
    with pytest.raises(CorelaneError, match=why):
        targets.parse(url)


def test_greetings_and_passwords():
    assert targets.parse("redis://x").greeting() == (b"", 0)
    target = targets.parse("redis://me:p%40ss@x:1/2")
    greeting, replies = target.greeting()
    assert greeting == b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$4\r\np@ss\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n"
    assert replies == 2
    assert target.shown == "redis://me:...@x:1/2"
    assert targets.parse("redis://:secret@x").shown == "redis://:...@x"
    assert targets.parse("redis://:a@b@x").shown == "redis://:...@x"
    assert targets.parse("http://x/a:b@c").shown == "http://x/a:b@c"
    with pytest.raises(CorelaneError) as refused:
        targets.parse("tcp://me:secret@x:1")
    assert "secret" not in str(refused.value)


def test_hosts_of_http():
    assert targets.parse("http://a.example/").authority == "a.example"
    assert targets.parse("http://a.example:81/").authority == "a.example:81"
    assert targets.parse("https://a.example/").authority == "a.example"
    assert targets.parse("https://a.example:80/").authority == "a.example:80"
    assert targets.parse("http://[::1]:81/").authority == "[::1]:81"
    given = Plan(target=targets.parse("http://a/"), workload=workloads.find("get"), headers=("HOST: b:1", "X: y"))
    assert (given.engine().host, given.engine().headers) == ("b:1", "X: y\r\n")


def test_addresses(monkeypatch: pytest.MonkeyPatch):
    assert targets.resolved(targets.parse("tcp://127.0.0.1:1")).address == "127.0.0.1"
    assert targets.resolved(targets.parse("tcp://localhost:1")).address in ("127.0.0.1", "::1")

    def fails(*args: object, **how: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(CorelaneError, match="has no address: Name or service not known"):
        targets.resolved(targets.parse("tcp://no-such-host.invalid:1"))


@pytest.mark.parametrize("name", workloads.NAMED)
def test_workloads_are_whole(name: str):
    work = workloads.find(name)
    assert sum(work.mix.values()) == pytest.approx(1)
    for table in (work.key_bytes, work.value_bytes):
        assert len(table) & (len(table) - 1) == 0
    assert f"{work.keys:,} keys" in work.described


def test_facebooks_lengths_are_the_papers():
    etc = workloads.find("ETC")
    assert statistics.mean(etc.key_bytes) == pytest.approx(36, abs=2)
    assert min(etc.value_bytes) == 0
    values = sorted(etc.value_bytes)
    short = sum(v <= 14 for v in values) / len(values)
    assert short == pytest.approx(sum(workloads.ETC_SHORT), abs=0.002)
    assert sum(v == 11 for v in values) / len(values) == pytest.approx(0.00092, abs=1e-4)
    assert 0.85 < sum(v <= 1000 for v in values) / len(values) < 0.99  # few are long, and hold most of the bytes
    assert set(workloads.find("usr").key_bytes) == {16, 21}
    assert set(workloads.find("usr").value_bytes) == {2}


def test_the_lengths_of_sys_are_in_the_ranges_that_the_source_gives():
    work = workloads.find("sys")
    assert work.mix == {"get": 0.75, "set": 0.25}

    def share(table: tuple[int, ...], low: int, high: int) -> float:
        return sum(low <= n <= high for n in table) / len(table)

    assert share(work.value_bytes, 1, 319) == pytest.approx(0.08, abs=0.002)
    assert share(work.value_bytes, 320, 500) == pytest.approx(0.80, abs=0.002)
    assert share(work.value_bytes, 501, 10_000) == pytest.approx(0.12, abs=0.002)
    assert share(work.key_bytes, 16, 19) == pytest.approx(0.4 * 4 / 5, abs=0.002)
    assert share(work.key_bytes, 16, 45) == 1


def test_lengths():
    assert workloads.sizes("64") == (64,)
    assert workloads.sizes("4K") == (4096,)
    drawn = workloads.sizes("64..1K")
    assert min(drawn) == 64
    assert max(drawn) == 1024
    assert statistics.mean(drawn) == pytest.approx(544, abs=2)
    for wrong in ("", "x", "0", "9..8", "1..2..3", "2G"):
        with pytest.raises(CorelaneError, match="is no length"):
            workloads.sizes(wrong)
    with pytest.raises(CorelaneError, match="1 to 250"):
        workloads.sizes("251", 250)


def test_workloads_are_changed():
    work = workloads.changed(workloads.find("ycsb-a"), keys=7, zipf=0.0, key_bytes="9", value_bytes="1..2", get=0.25)
    assert (work.keys, work.zipf, work.key_bytes) == (7, 0.0, (9,))
    assert work.mix == {"get": 0.25, "set": 0.75}
    assert set(work.value_bytes) == {1, 2}
    with pytest.raises(CorelaneError, match=r"no workload 'ycsb-z'.*choose one of get,"):
        workloads.find("ycsb-z")


def test_arrivals():
    assert arrivals.parse("poisson").kind == "poisson"
    assert arrivals.parse("bursty:32:0.5") == arrivals.Arrivals("bursty", 32, 0.5)
    assert arrivals.parse("bursty") == arrivals.Arrivals("bursty")
    for wrong in ("", "often", "bursty:0", "bursty:8:2", "bursty:x"):
        with pytest.raises(CorelaneError, match="no kind of arrivals"):
            arrivals.parse(wrong)


def test_recorded_arrivals_are_read(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("# seconds,op\n0.0,get\n0.5 set\n\n1.25;x\n")
    given = arrivals.parse(f"replay:{path}")
    assert array.array("Q", given.due_ns).tolist() == [0, 500_000_000, 1_250_000_000]
    assert (given.replayed, given.seconds) == (3, 1.25)
    assert [given.rate(0.0, 1.25), given.rate(0.25, 1.25), given.rate(0.6, 0.5)] == [1.6, 1.6, 0.0]
    for text, why in (
        ("1\n0.5\n", "line 2 begins with '0.5'"),
        ("x\n", "line 1"),
        ("", "no arrivals"),
        ("-1", "line 1"),
    ):
        path.write_text(text)
        with pytest.raises(CorelaneError, match=why):
            arrivals.replay(path)
    with pytest.raises(CorelaneError, match="No such file"):
        arrivals.replay(tmp_path / "none")


def test_limits():
    assert searching.parse_limit("p99=100us") == searching.Limit(0.99, 100.0)
    assert searching.parse_limit("p99.9=2ms") == searching.Limit(0.999, 2000.0)
    assert searching.parse_limit("p999=2ms").name == "p99.9"
    assert str(searching.parse_limit("p50=500ns")) == "p50 of 0.5 us at most"
    for wrong in ("", "100us", "p99=100", "p0=1us", "p100=1us", "p99=0us", "p99=1h"):
        with pytest.raises(CorelaneError, match="no limit of latency"):
            searching.parse_limit(wrong)
