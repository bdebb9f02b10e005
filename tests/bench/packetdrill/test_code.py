"""Assertions about TCP_INFO: what holds, what does not, and what is refused."""

from __future__ import annotations

import pytest

from corelane.bench.packetdrill import code
from corelane.bench.packetdrill.tokens import NotSupported

INFO = {"tcpi_snd_cwnd": 10, "tcpi_options": 3, "tcpi_ca_state": 0}


@pytest.mark.parametrize(
    "source",
    [
        "assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd",
        "assert tcpi_ca_state == TCP_CA_Open",
        "assert (tcpi_options & TCPI_OPT_SACK) != 0, 'no SACK'",
        "assert 'cwnd=%d of %s' % (tcpi_snd_cwnd, 10) == 'cwnd=10 of 10'",
        "assert 5 < tcpi_snd_cwnd <= 10 and not tcpi_ca_state",
        "a = tcpi_snd_cwnd * 2\nassert a == 20\nprint(a)",
        "assert tcpi_snd_cwnd in (9, 10) or 1 / 0",
        r"assert '\d' == '\\d'",
        "assert max(1, abs(-tcpi_snd_cwnd)) // 3 == 3 if tcpi_options else False",
    ],
)
def test_what_holds(source: str):
    assert code.needs(source) == []
    assert code.fields(source) <= INFO.keys()
    assert code.run(source, INFO) is None


def test_what_does_not_hold_is_said_with_the_values():
    said = code.run("assert tcpi_snd_cwnd == 12, tcpi_snd_cwnd", INFO)
    assert said is not None
    assert "tcpi_snd_cwnd is 10" in said
    assert "says 10" in said


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "assert open('/etc/passwd')",
        "assert tcpi_snd_cwnd.__class__",
        "assert (lambda: 1)()",
        "assert [x for x in (1, 2)]",
        "while 1: pass",
        "assert 2 ** 100",
        "assert 'a' * 1000000000",
        "assert '%1000000000d' % 1",
        "assert '%*d' % (1000000000, 1)",
        "assert print",
        "assert __import__('os')",
        "a.b = 1",
        "not python at all",
    ],
)
def test_nothing_else_is_run(source: str):
    if not code.needs(source):
        with pytest.raises(NotSupported):
            code.run(source, INFO)


def test_numbers_stay_small():
    with pytest.raises(NotSupported):
        code.run("a = 1 << 64\nb = a * a * a\nassert b", INFO)
    with pytest.raises(NotSupported):
        code.run("assert tcpi_options / 0", INFO)


def test_fields_that_are_not_there_are_named():
    assert code.fields("assert tcpi_new > tcpi_snd_cwnd") - INFO.keys() == {"tcpi_new"}
    with pytest.raises(NotSupported, match="tcpi_new"):
        code.run("assert tcpi_new", INFO)
