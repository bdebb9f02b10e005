"""An interrupt while an iokernel starts leaves nothing of it: its loops would poll uplinks that are closed next."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from corelane.iokernel import Iokernel, iokernel


class StartedThenInterrupted(threading.Thread):
    def start(self) -> None:
        super().start()
        raise KeyboardInterrupt


class InterruptedThenStarted(threading.Thread):
    def start(self) -> None:
        threading.Timer(0.05, super().start).start()
        raise KeyboardInterrupt


class NeverStarted(threading.Thread):
    def start(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [StartedThenInterrupted, InterruptedThenStarted, NeverStarted])
def test_an_interrupt_as_the_control_thread_starts(
    kind: type[threading.Thread], socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = Iokernel(socket_path, poll="block")
    with monkeypatch.context() as patch:
        patch.setattr(iokernel, "threading", SimpleNamespace(**vars(threading) | {"Thread": kind}))
        with pytest.raises(KeyboardInterrupt):
            io.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "corelane-control"]
    assert not Path(socket_path).exists()
    assert io.failure == ""
    with io:
        assert io.apps == ()


def test_what_is_told_at_the_start_may_raise(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(event: str, text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(iokernel.OwnClaim, "shared", lambda claim: ["another one"])
    io = Iokernel(socket_path, poll="block", tell=tell)
    with pytest.raises(KeyboardInterrupt):
        io.start()
    assert not Path(socket_path).exists()
