"""corelane up with a generated load, in this process."""

from __future__ import annotations

import argparse

import pytest

from corelane.cli import up
from corelane.iokernel.control.server import ControlServer
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
