"""A NIC whose driver is not corelane's, examples/socket_nic.c: what the tests of all NICs do not ask."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.drivers.nic.nic import Nic
from corelane.runtime.errors import CorelaneError


@pytest.mark.parametrize("address", [None, 0])
def test_a_driver_that_made_none(address: int | None) -> None:
    with pytest.raises(CorelaneError, match="take a NIC of another driver: it has made none"):
        Nic.at(address)


@pytest.mark.parametrize("pair", ["socket-example"], indirect=True)
def test_an_end_that_closed_is_noticed_when_the_other_receives(pair: Any) -> None:
    assert pair.a.send(pair.frame(b"last words")) == 1
    pair.a.close()
    assert len(pair.collect(pair.b, 1)) == 1
    assert pair.b.recv() == []
    assert pair.b.gone
    assert pair.b.send([pair.frame(b"anybody there?", back=True)] * 3) == 3
    assert pair.b.stats().tx_dropped_error == 3


@pytest.mark.parametrize("pair", ["socket-example"], indirect=True)
def test_the_shortest_and_the_longest_frame_arrive(pair: Any) -> None:
    assert (pair.a.mtu, pair.a.ipv4, pair.a.ipv4_prefix) == (1500, "10.77.9.1", 24)
    assert pair.a.send([b"x" * 14, b"x" * 1514]) == 2
    assert sorted(len(frame) for frame in pair.b.recv()) == [14, 1514]
    assert pair.b.stats().rx_dropped_malformed == 0
