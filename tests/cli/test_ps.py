"""What `ps` shows of statistics, and that it fits the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.cli import ps

STATS: dict[str, Any] = {
    "pid": 1234,
    "socket": "/run/user/1000/corelane.sock",
    "uptime_s": 3600.0,
    "mode": "adaptive",
    "cores": None,
    "loops": [{"cpu": 0, "sleeps": 12345, "rates": {"busy_s": 0.5}, "dropped_no_app": 7}],
    "uplinks": [{"name": "cl0", "mac": "02:00:00:00:00:01", "gone": False, "rates": {"rx_frames": 1e6}}],
    "apps": [
        {
            "name": "a-long-name-of-an-application",
            "pid": 123456,
            "ipv4": "10.77.200.100",
            "cpus": [1, 2],
            "rates": {"rx_delivered": 1e6, "tx_taken": 1e6},
            "counters": {
                "values": {"handler_errors": 2, "dropped_udp_checksum": 1_000_000},
                "rates": {"handled": 1e6, "replied": 1e6},
            },
        },
        {"name": "kv", "pid": 7, "ipv4": "10.77.0.8", "cpus": [], "rates": {}, "counters": None},
    ],
}


def words(text: str, first: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(first)).split()


def test_all_columns_where_there_is_room() -> None:
    text = ps.render(STATS)
    assert words(text, "NAME") == [*ps._HEAD]
    numbers = ["1,000,000"] * 4
    assert words(text, "a-long-name") == [
        *("a-long-name-of-an-application", "123456", "10.77.200.100", "1,2"),
        *(*numbers, "2", "1,000,000"),
    ]
    assert words(text, "kv") == ["kv", "7", "10.77.0.8", "any", "0", "0", "-", "-", "-", "0"]
    assert "loop on cpu 0 dropped: 7 dropped_no_app" in text
    assert "failed: 2 handler_errors" in text


def test_what_was_for_others_is_not_lost() -> None:
    values = {"dropped_arp_not_ours": 3, "dropped_eth_not_ours": 4, "dropped_udp_no_port": 5}
    row = STATS["apps"][1] | {"counters": {"values": values, "rates": {}}}
    text = ps.render(STATS | {"apps": [row]})
    assert words(text, "kv")[-1] == "5"
    assert "kv dropped: 5 dropped_udp_no_port" in text
    assert "not_ours" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_columns_that_fit_are_shown(width: int) -> None:
    text = ps.render(STATS, width)
    assert max(map(len, text.splitlines())) <= width
    heads = words(text, "NAME")
    assert heads == [head for head in ps._HEAD if head in ps._WANTED[: len(heads)]], "the wanted, in their order"
    assert len(heads) >= min(10, width // 20)
    assert sorted(ps._WANTED) == sorted(ps._HEAD)


def test_without_applications_it_says_how_to_attach_one() -> None:
    assert "corelane run NAME attaches one" in ps.render({**STATS, "apps": []}, 80)
