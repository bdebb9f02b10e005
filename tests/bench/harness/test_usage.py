"""What the kernel counts of sockets and disks, from files that are made up, and of this process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cltest import wait_until

from corelane.bench.harness import usage

UDP = """   sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when uid timeout inode ref pointer drops
  12: 0100007F:2B67 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 7
  13: 0100007F:2B68 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 2 2 0000000000000000 35
"""
SOFTNET = "0000ffff 0000000a 00000000\n0000ffff 00000001 00000000\n"


def test_datagrams_that_full_sockets_refused(tmp_path: Path) -> None:
    (tmp_path / "77/net").mkdir(parents=True)
    (tmp_path / "77/net/udp").write_text(UDP)
    assert usage.udp_dropped("77", tmp_path) == 42
    assert usage.udp_dropped("78", tmp_path) == 0
    (tmp_path / "77/net/udp").write_text(UDP + "  14: cut off\n")
    assert usage.udp_dropped("77", tmp_path) == 0


def test_memory_of_this_process() -> None:
    before = usage.own_memory()
    kept = bytearray(b"x") * (32 << 20)
    assert usage.own_memory() - before > len(kept) // 2


def test_a_full_socket_is_seen_in_the_namespace_of_a_thread() -> None:
    tid = next(iter(usage.threads()))
    before = usage.udp_dropped(f"self/task/{tid}")
    with socket.socket(type=socket.SOCK_DGRAM) as full, socket.socket(type=socket.SOCK_DGRAM) as client:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        full.bind(("127.0.0.1", 0))
        for _ in range(100):
            client.sendto(bytes(1000), full.getsockname())
        wait_until(lambda: usage.udp_dropped(f"self/task/{tid}") > before, what="what was lost to be counted")


def test_packets_that_the_kernels_queues_refused(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/softnet_stat").write_text(SOFTNET)
    assert usage.backlog_dropped(tmp_path) == 11
    assert usage.backlog_dropped(tmp_path / "nowhere") == 0


def test_time_in_which_a_disk_had_requests_in_flight(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    assert usage.disk_busy_s(tmp_path, tmp_path) is None
    folder = tmp_path / f"{os.major(device)}:{os.minor(device)}"
    folder.mkdir()
    (folder / "stat").write_text("1 0 8 0 2 0 16 0 0 2039960 10 11 12 13\n")
    assert usage.disk_busy_s(tmp_path, tmp_path) == 2039.96
    assert usage.disk_busy_s(tmp_path / "nowhere", tmp_path) is None
    assert usage.disk_flushes(tmp_path, tmp_path) is None  # a kernel before 5.5
    (folder / "stat").write_text("1 0 8 0 2 0 16 0 0 2039960 10 11 12 13 14 15 16\n")
    assert usage.disk_flushes(tmp_path, tmp_path) == 15
