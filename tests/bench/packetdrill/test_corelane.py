"""Our own TCP as the stack under test, in virtual time: all of our scripts, and which do not pass yet, and why."""

from __future__ import annotations

from pathlib import Path

from corelane.bench.packetdrill.corelane import corelane_stack
from corelane.bench.packetdrill.suite import judge_all

SCRIPTS = Path(__file__).parents[2] / "libos" / "net" / "tcp" / "scripts"
# What fails, by what is missing. Whoever adds that takes the lines out: a script that passes must not stand here.
NOT_YET: dict[str, tuple[str, ...]] = {}
# What needs something that this stack does not have, and need not: settings of Linux.
UNSUPPORTED = {"sack/duplicate-off": "sysctl net.ipv4.tcp_dsack=0", "urgent/inline": "SO_OOBINLINE"}


def test_what_passes_and_what_does_not_yet():
    verdicts = {str(v.file): v for v in judge_all(sorted(SCRIPTS.rglob("*.pkt")), corelane_stack)}
    named = {name: v for path, v in verdicts.items() for name in [str(Path(path).relative_to(SCRIPTS))[:-4]]}
    failed = {name for name, v in named.items() if v.status not in ("passed", "deviates", "unsupported")}
    expected = {name for names in NOT_YET.values() for name in names}
    assert failed - expected == set(), "\n".join(named[name].text() for name in sorted(failed - expected))
    assert expected - failed == set(), "they pass now: take them out of NOT_YET"
    lacking = {name: " ".join(v.needs) for name, v in named.items() if v.status == "unsupported"}
    assert lacking.keys() == UNSUPPORTED.keys(), lacking
    assert all(what in lacking[name] for name, what in UNSUPPORTED.items()), lacking
