"""What `corelane run` says of traces: options, the configuration's [trace], and a limit that is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corelane.cli import tracing
from corelane.cli.main import main
from corelane.cli.usage import Parser, WrongUsage
from corelane.libos.trace.kept import load, names
from corelane.runtime.errors import ConfigError
from corelane.runtime.tracing import Trace


def of(*words: str) -> Trace:
    parser = Parser()
    tracing.add_arguments(parser)
    return tracing.of(parser.parse_args(words))


def test_options_win_over_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert of() == Trace()
    assert of("--slo", "1ms", "--slo", "udp:9000:p99=50us").slo == ("1ms", "udp:9000:p99=50us")
    Path("c.toml").write_text('[trace]\nmode = "full"\none_in = 7\nslo = ["2ms"]\nfolder_mib = 3\n')
    assert of("--config", "c.toml") == Trace(mode="full", one_in=7, slo=("2ms",), folder_mib=3)
    both = of("--config", "c.toml", "--trace", "sampled", "--slo", "1s", "--trace-folder", "here")
    assert both == Trace(one_in=7, slo=("1s",), folder_mib=3, folder=str(tmp_path / "here"))


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="limits"):
        of("--trace", "off", "--slo", "1ms")
    with pytest.raises(WrongUsage, match="'fast': expected limits of latency"):
        of("--slo", "fast")
    file = tmp_path / "c.toml"
    file.write_text("[trace]\nslo = [1]\n")
    with pytest.raises(ConfigError, match=r"c.toml:2: trace.slo: is 1"):
        of("--config", str(file))


def test_a_run_keeps_what_broke_its_limit(tmp_path: Path, capsys: Any) -> None:
    """1 ns is broken by any request."""
    words = ["--nic", "loadgen:echo,rate=20000,seconds=0.2", "--slo", "1ns", "--trace-folder", str(tmp_path)]
    assert main(["run", "echo", *words, "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (recorded,) = [event for event in said if event["event"] == "recorded"]
    (name,) = names(tmp_path)
    assert name.removesuffix(".trace") in recorded["text"]
    head, records = load(tmp_path / name)
    assert (head.name, head.mode, head.broken.limit) == ("echo", "sampled", "1ns")
    assert head.broken.id in records.messages["id"]
    assert records.garbage == 0
    assert main(["trace", "last", "--folder", str(tmp_path)]) == 0
    assert head.broken.service in capsys.readouterr().out
