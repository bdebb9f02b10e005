"""Groups of options of an AF_XDP NIC, and what queues may be asked for. Needs no privilege."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.drivers.nic.af_xdp import af_xdp
from corelane.drivers.nic.af_xdp.af_xdp import SocketOptions, Umem
from corelane.runtime.errors import CorelaneError


@pytest.mark.parametrize(
    ("group", "options", "says"),
    [
        (Umem, {"ring_slots": 0}, "Umem: ring_slots: is 0"),
        (Umem, {"fill": 0}, "Umem: fill: is 0"),
        (Umem, {"buffers": -1}, "Umem: buffers: is -1"),
        (Umem, {"buffer_bytes": 1024}, "Umem: buffer_bytes: is 1024 (expected one of 2048, 4096)"),
        (SocketOptions, {"zero_copy": "require"}, 'SocketOptions: zero_copy: is "require" (expected one of "auto", '),
        (SocketOptions, {"need_wakeup": 1}, "SocketOptions: need_wakeup: is 1 (expected true or false)"),
        (SocketOptions, {"busy_poll_us": -1}, "SocketOptions: busy_poll_us: is -1"),
    ],
)
def test_a_group_has_limits(group: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(CorelaneError) as refused:
        group(**options)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("asked", "opened"),
    [(None, range(4)), (4, range(4)), (range(1, 3), range(1, 3)), (range(4), range(4))],
)
def test_queues_are_all_or_those_of_a_range(monkeypatch: Any, asked: Any, opened: range) -> None:
    monkeypatch.setattr(af_xdp, "receive_queues", lambda _: 4)
    assert af_xdp._queues("eth0", asked) == opened


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (3, "only 3 would be read.*queues=range"),
        (5, "has 4 receive queues, not 5"),
        (range(3, 5), "has 4 receive queues, not 5"),
        (0, "give a number"),
        (range(2, 2), "give a number"),
        (range(0, 4, 2), "give a number"),
        (range(-1, 2), "give a number"),
    ],
)
def test_other_queues_are_refused(monkeypatch: Any, asked: Any, says: str) -> None:
    monkeypatch.setattr(af_xdp, "receive_queues", lambda _: 4)
    with pytest.raises(CorelaneError, match=says):
        af_xdp._queues("eth0", asked)
