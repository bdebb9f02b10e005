"""Our own scripts: each can be read, prints as what it is, says which rule it is about, and needs nothing unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.bench.packetdrill import code, model, run, symbols, text
from corelane.bench.packetdrill.calls import operation_of
from corelane.bench.packetdrill.linux import LinuxStack
from corelane.bench.packetdrill.parse import parse
from corelane.bench.packetdrill.settings import settings

SCRIPTS = Path(__file__).parents[2] / "libos" / "net" / "tcp" / "scripts"
ALL = sorted(SCRIPTS.rglob("*.pkt"))


def test_there_are_as_many_as_were_promised():
    assert len(ALL) >= 150
    assert len({path.parent.name for path in ALL}) >= 15


@pytest.mark.parametrize("topic", sorted({path.parent.name for path in ALL}))
def test_scripts_of_a_topic(topic: str):
    stack = LinuxStack.__new__(LinuxStack)  # its lists are asked, and nothing is opened
    for path in (SCRIPTS / topic).glob("*.pkt"):
        source = path.read_text()
        comment = next(line for line in source.splitlines() if line and not line.startswith("--"))
        assert comment.startswith("// "), f"{path} does not begin with what it is about"
        assert max(map(len, source.splitlines())) <= 120, path
        script = parse(source)
        assert parse(text.script_text(script)) == script, path
        assert settings(script)
        assert run.needs(script, stack) == [], path


def test_what_is_lacking_is_found_by_the_same_check():
    call = model.Call("splice", (model.Word("NO_SUCH"),), model.Int(0))
    assert operation_of(call.name) is None
    assert symbols.unknown_words(call) == ["NO_SUCH"]
    assert code.needs("import os")
