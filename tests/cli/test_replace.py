"""corelane run --replace: a new version takes the place of the old one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cltest.commands import ask


@pytest.mark.soak(short=True, takes_s=4)
def test_a_new_version_takes_over_and_the_old_one_ends(start: Any, tmp_path: Path) -> None:
    path, settings = str(tmp_path / "io.sock"), tmp_path / "corelane.toml"
    settings.write_text("[apps.echo]\nmembers = 2\n")
    start("up", "--config", str(settings), "--socket", path, "--json").event("iokernel")
    words = ["run", "echo", "--socket", path, "--wait", "30", "--json"]
    old = start(*words)
    old.event("serving")
    new = start(*words, "--replace")
    assert "1 other member of echo drains" in new.event("draining")["text"]
    told = new.event("replaced")
    assert (told["members"], told["left"]) == (1, 0)
    assert old.process.wait(20) == 0
    shown = ask("ps", "--socket", path, "--interval", "0.05")
    assert "echo[1]" in shown.stdout
    assert "echo[0]" not in shown.stdout
    alone = start("run", "kv", "--socket", path, "--replace", "--json")
    assert alone.process.wait(20) != 0
    alone.errors.seek(0)
    assert "members" in alone.errors.read()
