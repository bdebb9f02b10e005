"""Which address an application gets, and which nobody gets by asking for it."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Iterator

import pytest
from cltest.switching import stats_of

from corelane.drivers.nic.nic import Nic, ipv4_to_int
from corelane.drivers.port.port import Port, open_port
from corelane.iokernel import AppConfig, Iokernel, NetworkConfig, Outside
from corelane.iokernel.control.addresses import Addresses, stable_ipv4, stable_mac
from corelane.runtime.errors import ConfigError, CorelaneError, Refused

NETWORK = NetworkConfig(gateway="10.77.0.1", host_address="10.77.0.2")
SMALL = NetworkConfig(subnet="10.77.0.0/28", gateway="10.77.0.9")
HOST = ipv4_to_int("10.77.0.77")
NOTHING = AppConfig()


def names() -> Iterator[str]:
    return (f"n{i}" for i in itertools.count())


def meeting(address: int, subnet: str) -> str:
    """A name whose hash is that address."""
    net = ipaddress.IPv4Network(subnet)
    return next(name for name in names() if stable_ipv4(name, net) == address)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("10.77.0.0", "10.77.0.0 is the subnet's own address"),
        ("10.77.255.255", "10.77.255.255 is the subnet's broadcast address"),
        ("10.77.0.1", "10.77.0.1 is the gateway's address"),
        ("10.77.0.2", "10.77.0.2 is this machine's own address"),
        ("10.77.0.77", "10.77.0.77 is this machine's own address"),
        ("10.77.0.9", "10.77.0.9 is reserved for kv"),
        (str(ipaddress.IPv4Address(stable_ipv4("db", ipaddress.IPv4Network("10.77.0.0/16")))), "is reserved for db"),
        ("10.78.0.9", "10.78.0.9 is not in 10.77.0.0/16"),
        ("255.255.255.255", "is not in"),
    ],
)
def test_an_address_that_is_somebodys_is_refused_with_the_reason(wanted: str, why: str) -> None:
    apps = {"kv": AppConfig(ip="10.77.0.9"), "db": AppConfig(weight=2)}
    book = Addresses(NETWORK, apps, host=lambda: (HOST,))
    with pytest.raises(Refused, match=why):
        book.ipv4("x", NOTHING, ipv4_to_int(wanted))


def test_a_free_address_is_had_for_the_asking() -> None:
    book = Addresses(NETWORK, {"kv": AppConfig(ip="10.77.0.9")})
    free = ipv4_to_int("10.77.3.3")
    assert book.ipv4("x", NOTHING, free) == free
    assert book.ipv4("kv", AppConfig(ip="10.77.0.9"), free) == ipv4_to_int("10.77.0.9"), "the configuration decides"


def test_the_configuration_may_make_an_application_the_gateway() -> None:
    router = AppConfig(ip="10.77.0.1")
    assert Addresses(NETWORK, {"router": router}).ipv4("router", router, 0) == ipv4_to_int("10.77.0.1")


def test_a_hash_never_meets_an_address_that_is_somebodys() -> None:
    apps = {"kv": AppConfig(ip="10.77.0.5"), "db": AppConfig()}
    host = ipv4_to_int("10.77.0.6")
    book = Addresses(SMALL, apps, host=lambda: (host,))
    of_db = book.ipv4("db", apps["db"], 0)
    taken = {*map(ipv4_to_int, ("10.77.0.0", "10.77.0.15", "10.77.0.9", "10.77.0.5")), host, of_db}
    for name in itertools.islice(names(), 200):
        assert book.ipv4(name, NOTHING, 0) not in taken
    assert len({book.ipv4(n, NOTHING, 0) for n in itertools.islice(names(), 500)}) == 16 - 1 - len(taken), "all others"


def test_a_name_keeps_its_address_whatever_others_have() -> None:
    """But for the names whose address it was."""
    net = ipaddress.IPv4Network(NETWORK.subnet)
    plain, full = Addresses(NETWORK, {}), Addresses(NETWORK, {f"a{i}": AppConfig() for i in range(50)})
    moved = [n for n in itertools.islice(names(), 300) if plain.ipv4(n, NOTHING, 0) != full.ipv4(n, NOTHING, 0)]
    assert len(moved) <= 3
    assert plain.ipv4("kv", NOTHING, 0) == stable_ipv4("kv", net)


def test_a_subnet_that_is_full_has_no_address() -> None:
    apps = {f"a{i}": AppConfig(ip=f"10.77.0.{i}") for i in range(2, 7)}
    with pytest.raises(ConfigError, match="has no room for applications"):
        Addresses(NetworkConfig(subnet="10.77.0.0/29"), apps).ipv4("x", NOTHING, 0)


def test_a_mac_address_that_is_somebodys_is_refused() -> None:
    mac = stable_mac("evil").hex(":")
    kv = AppConfig(mac=mac)
    book = Addresses(NETWORK, {"kv": kv})
    assert book.mac("kv", kv).hex(":") == mac
    with pytest.raises(Refused, match=f"the MAC address of the name evil, {mac}, is reserved for kv"):
        book.mac("evil", NOTHING)
    assert book.mac("other", NOTHING) == stable_mac("other")
    with pytest.raises(Refused, match="is this machine's"):
        Addresses(NETWORK, {}, macs=[mac]).mac("evil", NOTHING)
    with pytest.raises(ConfigError, match=r"apps\.kv\.mac: .* is this machine's own"):
        Addresses(NETWORK, {"kv": kv}, macs=[mac])


def test_an_iokernel_gives_out_none_of_them(
    start: Callable[..., Iokernel], socket_path: str, link: Callable[..., tuple[Nic, Nic]], attach: Callable[..., Port]
) -> None:
    """By the way of a whole registration, of a name that meets a reserved address, too."""
    inner, _ = link()
    reserved = "10.77.0.9"
    io = start(
        uplinks=[inner],
        network=NETWORK,
        apps={"kv": AppConfig(ip=reserved)},
        outside=Outside(host_addresses=lambda: (HOST,)),
    )
    for wanted in ("10.77.0.0", "10.77.255.255", "10.77.0.1", "10.77.0.2", "10.77.0.77", reserved):
        with pytest.raises(CorelaneError, match=f"{wanted} is .* \\(choose another address\\)"):
            open_port(socket_path, name="x", ipv4=wanted)
    name = meeting(ipv4_to_int(reserved), NETWORK.subnet)
    attach(name)
    attach("kv")
    assert stats_of(io, "kv")["ipv4"] == reserved
    assert stats_of(io, name)["ipv4"] != reserved
