"""Options of a trace: limits of latency as texts, and what goes together."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.runtime import config, paths
from corelane.runtime.errors import ConfigError, SystemLimit
from corelane.runtime.tracing import Trace, limit_of


@pytest.mark.parametrize(
    ("text", "service", "quantile", "us"),
    [
        ("1ms", "", None, 1000.0),
        ("p99=50us", "", 0.99, 50.0),
        ("P99.9=1.5MS", "", 0.999, 1500.0),
        (" 2s ", "", None, 2e6),
        ("700ns", "", None, 0.7),
        ("udp:9000:p50=3us", "UDP 9000", 0.5, 3.0),
        ("tcp:80:1ms", "TCP 80", None, 1000.0),
        ("raft:7400:p99=5ms", "Raft 7400", 0.99, 5000.0),
        ("RESP:6379:1s", "RESP 6379", None, 1e6),
    ],
)
def test_limits_as_people_write_them(text: str, service: str, quantile: float | None, us: float) -> None:
    limit = limit_of(text)
    assert (limit.text, limit.service, limit.us) == (text.strip(), service, pytest.approx(us))
    assert limit.quantile == (None if quantile is None else pytest.approx(quantile))


@pytest.mark.parametrize("text", ["", "1", "ms", "0ms", "p0=1ms", "p100=1ms", "-1ms", "p99:1ms", "udp:0:1ms", "1e3us"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='"1ms", "p99=50us"'):
        limit_of(text)
    with pytest.raises(ConfigError, match="Trace: slo: is"):
        Trace(slo=(text,))


def test_a_folder_is_an_absolute_path() -> None:
    with pytest.raises(ConfigError, match="an absolute path"):
        Trace(folder="traces")


def test_limits_need_a_trace_in_the_configuration_too() -> None:
    read = config.loads('[trace]\nmode = "full"\nslo = ["1ms", "tcp:80:p99=50us"]\n').trace
    assert (read.mode, [limit.service for limit in read.limits]) == ("full", ["", "TCP 80"])
    with pytest.raises(ConfigError, match=r"<text>:1: trace: limits \(slo\) need a trace"):
        config.loads('[trace]\nmode = "off"\nslo = ["1ms"]\n')


def test_traces_are_kept_among_the_users_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert paths.traces() == Path("/state/corelane/traces")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # which its specification has ignored
    monkeypatch.setenv("HOME", "/home/me")
    assert paths.traces() == Path("/home/me/.local/state/corelane/traces")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(SystemLimit, match="set XDG_STATE_HOME"):
        paths.traces()
