"""corelane up with a generated load, in this process."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest
from cltest import wait_until

from corelane import libos
from corelane.cli import up
from corelane.cli.nics import open_nic
from corelane.cli.usage import WrongUsage
from corelane.drivers.nic.link.link import LinkNic
from corelane.iokernel import Iokernel
from corelane.iokernel.control.server import ControlServer
from corelane.runtime.config import LinkConfig, NicConfig
from corelane.runtime.errors import CorelaneError


def test_a_control_thread_that_ended_is_an_error_while_an_application_is_waited_for(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_server: ControlServer) -> float:
        raise RuntimeError("a planted fault")

    monkeypatch.setattr(ControlServer, "_timeout", fails)
    parser = argparse.ArgumentParser()
    up.add_arguments(parser)
    options = parser.parse_args(["--socket", socket_path, "--nic", "loadgen:echo", "--poll", "block"])
    with pytest.raises(CorelaneError, match=r"its thread ended \(RuntimeError: a planted fault\)"):
        up.run(options)


def test_an_application_that_is_attached_has_not_started_yet(socket_path: str) -> None:
    with Iokernel(socket_path, poll="block") as iokernel, libos.Runtime(socket_path, name="late") as runtime:
        assert "late" in iokernel.apps
        assert not up.has_started(iokernel, "late")
        runtime.start()
        wait_until(lambda: up.has_started(iokernel, "late"), 60, "its announcement")
        assert not up.has_started(iokernel, "other")


def configured(nic: str) -> NicConfig:
    parser = argparse.ArgumentParser()
    up.add_arguments(parser)
    return up.configuration(parser.parse_args(["--nic", nic])).nic


@pytest.mark.parametrize("nic", ["tap:cl0", "loadgen:echo"])
def test_words_of_an_uplink_say_what_is_around_it(nic: str) -> None:
    got = configured(f"{nic},loss=0.1,delay_us=5,link.rate_bps=1e9,link.priorities=2,record=/x.pcap")
    assert (got.fault.loss, got.fault.delay_us, got.record) == (0.1, 5.0, "/x.pcap")
    assert got.link == LinkConfig(rate_bps=1e9, priorities=2)
    assert got.link.given()["rate_bps"] == 1e9
    assert not configured(f"{nic},link.seed=7").link.given(), "a seed alone asks for nothing"


def test_words_of_an_embedded_nic_put_a_line_around_it() -> None:
    nic, generator = open_nic("loadgen:echo,link.delay_us=5,link.seed=3", 1, None)
    with nic, generator:
        assert isinstance(nic, LinkNic)


@pytest.mark.parametrize(
    ("word", "said"),
    [("link.priorities=9", "priorities"), ("link.rate=1", "rate_bps"), ("link.loss=x", "loss")],
)
@pytest.mark.parametrize("of", [configured, lambda nic: open_nic(nic, 1, None)])
def test_words_of_a_line_that_cannot_be_are_wrong_usage(of: Callable[[str], object], word: str, said: str) -> None:
    with pytest.raises(WrongUsage, match=said):
        of(f"loadgen:echo,{word}")


def test_a_control_thread_that_ended_is_an_error_under_load() -> None:
    class Generator:
        running = True

        def start(self) -> None:
            pass

    class Never:
        def wait(self, _seconds: float) -> bool:
            return False

    def check_serves() -> None:
        raise CorelaneError("keep the control socket", "a planted fault")

    with pytest.raises(CorelaneError, match="a planted fault"):
        up._load(argparse.Namespace(), "echo", Generator(), Never(), check_serves)  # type: ignore[arg-type]
