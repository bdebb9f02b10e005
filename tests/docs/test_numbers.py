"""A page that repeats a constant of the code says the constant's value, and headers name constants by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("include", "runtime", "drivers", "iokernel", "libos", "apps", "bench")

# A page, and what it says. In braces: the constant, and the unit that the page counts it in.
SAID = [
    ("handlers.md", "({CL_UDP_TYPE_QUEUE} requests a kthread)"),
    ("handlers.md", "{CL_UDP_TYPE_QUEUE} for each type and kthread"),
    ("handlers.md", "All handlers of a runtime have {CL_UDP_TYPES} types together"),
    ("handlers.md", "gets up to {CL_UDP_BURST} requests at a time"),
    ("handlers.md", "`CL_UDP_SOCKET_QUEUE` ({CL_UDP_SOCKET_QUEUE})"),
    ("handlers.md", "`CL_UDP_MAX_SOCKETS` ({CL_UDP_MAX_SOCKETS})"),
    ("libos.md", "limited to {CL_ICMP_PER_S} a second"),
    ("uthreads.md", "in a runtime of kind batch {CL_RUNTIME_BATCH_STACK_BYTES:MiB} MiB"),
    ("uthreads.md", "a guard of {GUARD_BYTES:MiB} MiB of address space"),
    ("uthreads.md", "keep its frames below {GUARD_BYTES:MiB} MiB"),
    ("uthreads.md", "at most {CL_BUDGET} at a time"),
    ("drivers.md", "A `memory` end has up to {CL_NIC_MAX_QUEUES} queues"),
    ("log.md", "one small blob of at most {CL_LOG_META_BYTES} bytes"),
    ("log.md", "blocks of {CL_LOG_BLOCK_BYTES} bytes"),
    ("policies.md", "tables of 1 to {CL_POLICY_MAX_APPS} applications"),
    ("storage.md", "after a pause of 1 to {CL_BLK_PAUSE_MOST_MS} ms"),
]
DEFINED = re.compile(r"^#define (\w+) \(?((?:0x[\da-f]+|[1-9]\d*|0(?!\d))u?(?: << \d+)?)", re.M)
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def constants() -> dict[str, set[int]]:
    """What each macro stands for that is a number, in the sources of all floors."""
    found: dict[str, set[int]] = {}
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.[ch]"):
            if "_include" in path.parts:
                continue
            for name, text in DEFINED.findall(path.read_text()):
                base, _, shift = text.partition(" << ")
                found.setdefault(name, set()).add(int(base.rstrip("u"), 0) << int(shift or 0))
    return found


CONSTANTS = constants()


def with_values(text: str) -> str:
    """The text with constants' values in place of their names."""

    def value(match: re.Match[str]) -> str:
        name, _, unit = match[1].partition(":")
        (number,) = CONSTANTS[name]
        assert number % UNITS[unit] == 0, match[1]
        return str(number // UNITS[unit])

    return re.sub(r"\{([\w:]+)\}", value, text)


@pytest.mark.parametrize(("page", "text"), SAID, ids=lambda word: re.sub(r"\W+", "-", word)[:40])
def test_a_page_says_what_the_code_says(page: str, text: str) -> None:
    said = " ".join((ROOT / "docs" / page).read_text().split())
    assert with_values(text) in said, f"docs/{page} does not say: {with_values(text)}"


COMMENT = re.compile(r"/\*.*?\*/", re.S)


def test_constants_that_headers_name_exist() -> None:
    code = {p: p.read_text() for floor in FLOORS for p in (ROOT / floor).rglob("*.[ch]") if "_include" not in p.parts}
    known = {name for text in code.values() for name in re.findall(r"\bCL_\w+", COMMENT.sub("", text))}
    named = {
        f"{path.name}: {name}"
        for path, text in code.items()
        if path.suffix == ".h"
        for comment in COMMENT.findall(text)
        for name in re.findall(r"\bCL_\w*[A-Z0-9]\b(?!_?[*.])", comment)
    }
    assert len(named) > 50
    assert not [name for name in named if name.split()[-1] not in known]
