"""What the configuration says arrives at the iokernel and its uplink."""

from __future__ import annotations

import grp
import pwd
import struct

import pytest
from cltest import open_descriptors, wait_until
from cltest.switching import between, collect, stats_of, udp_frame

from corelane.drivers.blk.file import create
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes
from corelane.drivers.nic.pcap import PcapNic
from corelane.drivers.port.port import open_port
from corelane.iokernel import Access, main
from corelane.runtime import config
from corelane.runtime.errors import ConfigError, CorelaneError
from corelane.runtime.placement import Placement

WORLD = (bytes.fromhex("020000000099"), ipv4_to_int("10.77.200.200"))


def plan(*loops: int) -> Placement:
    return Placement(iokernel=loops, kthreads=(), reasons=())


def make(text: str, socket_path: str, uplink=None, loops=(-1,)):
    return main.make(config.loads(text, overrides=[f"iokernel.socket={socket_path}"]), uplink, plan(*loops))


def test_users_and_groups_by_name_and_by_number():
    me, group = pwd.getpwuid(0).pw_name, grp.getgrgid(0).gr_name
    said = config.loads(f'[iokernel]\nusers = ["{me}", 1234]\ngroups = [4321, "{group}"]')
    assert main.allowed(said) == Access(mode=0o666, uids=(0, 1234), gids=(4321, 0))
    assert main.allowed(config.loads("")) == Access(mode=0o660)
    with pytest.raises(ConfigError, match=r"iokernel\.users: 'nobody-of-that-name' does not exist on this machine"):
        main.allowed(config.loads('[iokernel]\nusers = ["nobody-of-that-name"]'))


def test_a_damaged_table_of_areas_is_reported(socket_path, tmp_path):
    create(tmp_path / "disk", 4 << 20)
    said = config.loads(f'[storage]\ndevice = "{tmp_path}/disk"', overrides=[f"iokernel.socket={socket_path}"])
    told: list[tuple[str, str]] = []

    def report(event: str, text: str, /, **_facts: object) -> None:
        told.append((event, text))

    with main.open_storage(said, report):
        assert told == []
    with open(tmp_path / "disk", "rb+") as file:
        file.write(bytes(64))
    with main.open_storage(said, report) as areas, main.make(said, None, plan(-1), areas):
        pass
    assert [event for event, _ in told] == ["storage"]
    assert "copy 0 of the table of areas, at offset 0," in told[0][1]


def test_what_is_no_area_in_a_folder_is_reported(tmp_path):
    (tmp_path / "areas").mkdir(mode=0o700)
    (tmp_path / "areas" / "log@0.area").symlink_to(tmp_path)
    said = config.loads(f'[storage]\ndirectory = "{tmp_path}/areas"')
    told: list[tuple[str, str]] = []
    with main.open_storage(said, lambda event, text: told.append((event, text))):
        pass
    assert told == [("storage", f"{tmp_path}/areas/log@0.area is no regular file, and so no area")]


def test_storage_is_free_again_behind_an_iokernel(socket_path, tmp_path):
    said = config.loads(f'[storage]\ndirectory = "{tmp_path}/areas"', overrides=[f"iokernel.socket={socket_path}"])
    for _ in range(2):
        with main.open_storage(said) as areas, main.make(said, None, plan(-1), areas):
            pass


def test_loops_of_applications(socket_path):
    text = "[apps.a]\nloop = 1\n[apps.b]\nloop = 1\n[apps.c]\nloop = 0"
    with make(text, socket_path, loops=(-1, -1)) as io:
        ports = {name: open_port(socket_path, name=name) for name in "abc"}
        assert [stats_of(io, name)["loop"] for name in "abc"] == [1, 1, 0]
        frame = between(ports["a"], ports["c"], b"across")
        assert ports["a"].send(frame) == 1
        assert collect(ports["c"], 1) == [frame]
        for port in ports.values():
            port.close()
    with pytest.raises(ConfigError, match=r"apps\.a\.loop: there is no loop 1 \(1 run, counted from 0\)"):
        make(text, socket_path)


def test_no_application_gets_this_machines_own_address(socket_path):
    with make('[nic]\ndriver = "tap"\ndevice = "unused"', socket_path):
        with pytest.raises(CorelaneError, match=r"10\.77\.0\.1 is this machine's own address"):
            open_port(socket_path, name="a", ipv4="10.77.0.1")
        open_port(socket_path, name="a", ipv4="10.77.0.3").close()


def test_the_other_end_of_an_uplink_may_write_after_the_end(socket_path):
    """Its wake-ups go to a descriptor that stays open, which the next iokernel takes: none leaks."""
    inner, outer = memory_link()
    with inner, outer:
        frame = udp_frame(WORLD, (WORLD[0], WORLD[1]), b"x")
        counted = []
        for _ in range(4):
            with make("", socket_path, inner) as io:
                assert outer.send(frame) == 1
                wait_until(lambda io=io: io.stats()["loops"][0]["up_received"] >= 1)
            outer.send(frame)
            counted.append(open_descriptors())
        assert counted == [counted[0]] * 4


def test_share_mac_record_and_faults(socket_path, tmp_path):
    """Everything that goes out is lost, but recorded; what comes in is lost before the recorder."""
    path = tmp_path / "up.pcap"
    text = f'[nic]\nshare_mac = true\nrecord = "{path}"\n[nic.fault]\nloss = 1.0\nseed = 7'
    inner, outer = memory_link()
    mac = mac_to_bytes(inner.mac)
    with outer, main.wrap(inner, config.loads(text)) as nic:
        with make(text, socket_path, nic) as io, open_port(socket_path, name="a") as port:
            frame = udp_frame((mac_to_bytes(port.mac), ipv4_to_int(port.ipv4)), WORLD, b"out")
            assert port.send([frame] * 10) == 10
            outer.send([udp_frame(WORLD, (mac, ipv4_to_int(port.ipv4)), b"in")] * 10)
            wait_until(lambda: io.stats()["loops"][0]["out_sent"] == 10)
            assert outer.recv() == []
            assert io.stats()["loops"][0]["up_received"] == 0
        assert isinstance(nic, PcapNic)
        nic.flush()
    recorded = path.read_bytes()
    at, frames = 24, []
    while at < len(recorded):  # pcap: 16 bytes in front of each frame, its length at 8
        kept = struct.unpack_from("<I", recorded, at + 8)[0]
        frames.append(recorded[at + 16 : at + 16 + kept])
        at += 16 + kept
    assert len(frames) == 10
    assert all(f[6:12] == mac and f[-3:] == b"out" for f in frames), "under the uplink's own address"


def test_a_recording_is_replayed_into_an_application(socket_path, tmp_path):
    path = tmp_path / "in.pcap"
    with open_iokernel(socket_path) as io, open_port(socket_path, name="a") as port:
        me = (mac_to_bytes(port.mac), ipv4_to_int(port.ipv4))
        assert io.stats()["uplinks"] == []
    frames = [udp_frame(WORLD, me, b"%d" % i) for i in range(5)]
    recorded = b"".join(struct.pack("<IIII", 0, i, len(f), len(f)) + f for i, f in enumerate(frames))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + recorded)
    said = config.loads(
        f'[nic]\ndriver = "pcap"\ndevice = "{path}"\nspeed = 0.0\nloops = 0\n[iokernel]\nsocket = "{socket_path}"'
    )
    with (
        main.open_uplink(said) as nic,
        main.make(said, nic, plan(-1)),
        open_port(socket_path, name="a") as port,
    ):
        got = collect(port, 20)
    assert set(got) == set(frames)


def open_iokernel(socket_path: str):
    return make("", socket_path)


def test_what_cannot_be_wrapped_is_closed(tmp_path):
    inner, outer = memory_link()
    with outer:
        with pytest.raises(CorelaneError):
            main.wrap(inner, config.loads(f'[nic]\nrecord = "{tmp_path}/none/x.pcap"\n[nic.fault]\nloss = 0.5'))
        assert inner.closed
