"""up and run on network devices, as a user starts them: taps and AF_XDP."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cltest.commands import ask

# Another user, who may read what root installed this Python in.
AS_NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)


# With a /dev/net/tun that everybody may open, as most systems have it; before another prefix.
WITH_TUN = (
    *("unshare", "--mount", "sh", "-ec"),
    'mknod -m 666 "$1" c 10 200; chmod 666 "$1"; mount --bind "$1" /dev/net/tun; shift; exec "$@"',
    "sh",
)


@pytest.mark.root
def test_every_program_of_the_machine_talks_through_a_tap(start: Any, netns: Any, tmp_path: Path) -> None:
    """README: `corelane up --nic tap:cl0`. Linux has an address on it, and answers ARP as the iokernel does."""
    space = netns.add("tap")
    path, record = str(tmp_path / "io.sock"), tmp_path / "up.pcap"
    with space.entered():  # the process inherits the namespace
        up = start("up", "--socket", path, "--nic", f"tap:cl0,record={record}", "--json")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    up.event("iokernel")
    address = run.event("serving")["address"].partition("/")[0]
    assert "10.77.0.1/16" in space.ip("-br", "address", "show", "cl0")
    with space.udp_socket(("0.0.0.0", 0), timeout_s=20) as sock:
        for size in (1, 100, 1472):
            payload = os.urandom(size)
            sock.sendto(payload, (address, 9000))
            assert sock.recvfrom(2048) == (payload, (address, 9000))
    if shutil.which("ping"):
        # Until three are answered: after a first answer -W waits for twice as long as that took, and no longer.
        done = space.run(["ping", "-c", "3", "-i", "0.05", "-w", "30", address])
        assert done.returncode == 0, done.stdout
        assert " 3 received" in done.stdout
    assert run.stop() == 0
    assert up.stop() == 0
    assert record.stat().st_size > 24 + 3 * 2 * 16 + 2 * (1 + 100 + 1472)


@pytest.mark.root
@pytest.mark.parametrize("driver", ["tap", "af_xdp"])
def test_an_idle_iokernel_tells_when_its_uplink_vanishes(start: Any, netns: Any, tmp_path: Path, driver: str) -> None:
    space = netns.add(driver)
    path = str(tmp_path / "io.sock")
    if driver == "af_xdp":
        space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
        space.ip("link", "set", "cl0", "up")
    with space.entered():  # the process inherits the namespace
        up = start("up", "--socket", path, "--nic", f"{driver}:cl0", "--json")
    up.event("iokernel")
    space.ip("link", "delete", "cl0")
    assert "its device was removed" in up.event("gone")["text"]
    shown = ask("ps", "--socket", path, "--interval", "0.01", "--json")
    assert json.loads(shown.stdout)["uplinks"][0]["gone"] is True
    assert up.stop() == 0


def with_offloads(netns: Any) -> Any:
    """A namespace with a veth pair as a user makes it: 10.79.9.1 is at cl1, which leaves sums to the device."""
    space = netns.add("xdp")
    space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
    for name in ("cl0", "cl1"):
        space.ip("link", "set", name, "up")
    space.ip("address", "add", "10.79.9.1/24", "dev", "cl1")
    return space


@pytest.mark.root
def test_sums_that_a_sender_leaves_to_its_device_are_explained(start: Any, netns: Any, tmp_path: Path) -> None:
    """A veth whose offloads are on, as a user makes it: AF_XDP sees the datagram before the sum is filled in."""
    space = with_offloads(netns)
    with space.entered():
        run = start("run", "echo", "--nic", "af_xdp:cl0", "--address", "10.79.9.2/24", "--json")
    mac = run.event("serving")["mac"]
    space.ip("neigh", "replace", "10.79.9.2", "lladdr", mac, "dev", "cl1", "nud", "permanent")
    with space.udp_socket(("10.79.9.1", 0), timeout_s=0.2) as sock:
        sock.sendto(b"?" * 30, ("10.79.9.2", 9000))
        try:
            sock.recv(100)
        except TimeoutError:
            filled_in = False
        else:
            filled_in = True
    if not filled_in:
        assert "run `ethtool -K IF tx off`" in run.event("unfinished")["text"], "while it runs"
    run.process.send_signal(signal.SIGTERM)
    told = run.event("stopped")
    if filled_in:
        pytest.skip("this kernel fills the sums in on a veth")
    assert told["dropped"]["udp_checksum"] == 1
    assert "ethtool -K ITS_INTERFACE tx off" in told["text"]


@pytest.mark.root
def test_an_iokernel_explains_sums_that_a_sender_leaves_to_its_device(start: Any, netns: Any, tmp_path: Path) -> None:
    space = with_offloads(netns)
    path = str(tmp_path / "io.sock")
    words = ("--set", "network.subnet=10.79.9.0/24", "--set", "apps.echo.ip=10.79.9.2", "--poll", "block", "--json")
    with space.entered():
        up = start("up", "--socket", path, "--nic", "af_xdp:cl0", *words)
        up.event("iokernel")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    mac = run.event("serving")["mac"]
    space.ip("neigh", "replace", "10.79.9.2", "lladdr", mac, "dev", "cl1", "nud", "permanent")
    with space.udp_socket(("10.79.9.1", 0), timeout_s=0.2) as sock:
        sock.sendto(b"?" * 30, ("10.79.9.2", 9000))
        with contextlib.suppress(TimeoutError):
            sock.recv(100)
            pytest.skip("this kernel fills the sums in on a veth")
    assert "run `ethtool -K IF tx off`" in run.event("unfinished")["text"]
    assert "echo drop frames" in (text := up.event("unfinished")["text"])
    assert "`ethtool -K cl1 tx off`" in text or "the other end of cl0" in text


@pytest.mark.root
@pytest.mark.parametrize("prepared", [True, False])
def test_a_tap_that_was_made_for_a_user_needs_no_root(prepared: bool, start: Any, netns: Any) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv: apt-get install util-linux")
    space = netns.add("tap")
    space.ip("tuntap", "add", "dev", "cl0", "mode", "tap", "user", "65534")
    by_root = [["address", "replace", "10.77.0.1/16", "dev", "cl0"], ["link", "set", "cl0", "up", "mtu", "1500"]]
    for words in by_root if prepared else ():
        space.ip(*words)
    with tempfile.TemporaryDirectory(prefix="corelane-") as folder:
        os.chown(folder, 65534, 65534)
        path = f"{folder}/io.sock"
        words = ("--socket", path, "--nic", "tap:cl0", "--set", "apps.echo.ip=10.77.0.9", "--json")
        with space.entered():
            up = start("up", *words, prefix=(*WITH_TUN, f"{folder}/tun", *AS_NOBODY))
            if not prepared:
                commands = " && ".join(f"ip {' '.join(command)}" for command in by_root)
                assert f"as root run `{commands}`" in up.event("tap")["text"]
                for command in by_root:
                    space.ip(*command)
            up.event("iokernel")
        start("run", "echo", "--socket", path, "--wait", "30", "--json", prefix=AS_NOBODY).event("serving")
        with space.udp_socket(("10.77.0.1", 0), timeout_s=20) as sock:
            sock.sendto(b"without root", ("10.77.0.9", 9000))
            assert sock.recv(100) == b"without root"
        assert up.stop() == 0
