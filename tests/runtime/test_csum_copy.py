"""Copying with a checksum, by AVX2 and by words, against RFC 1071's definition; under sanitizers too."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

Program = Callable[..., Callable[..., str]]


def test_both_forms_at_every_length(c_program: Program, seed: int) -> None:
    said = c_program("tests/runtime/c/csum_copy.c", ["runtime/csum_copy.c"], one_thread=True)(seed)
    has_avx2 = platform.machine() == "x86_64" and " avx2 " in Path("/proc/cpuinfo").read_text()
    assert said == ("avx2\n" if has_avx2 else "plain\n")
