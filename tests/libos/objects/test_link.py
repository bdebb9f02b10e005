"""Where a linked object goes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from corelane.libos.objects import link as linking
from corelane.runtime.errors import CorelaneError


def test_it_is_there_whole_and_nothing_but_a_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`corelane compile -o /dev/null`, by root."""
    monkeypatch.setattr(linking, "linked", lambda objects, name: b"code")
    out = tmp_path / "out.so"
    assert linking.link([], out) == linking.link([], Path("/dev/null")) == 4
    assert (out.read_bytes(), stat.S_IMODE(out.stat().st_mode)) == (b"code", 0o755)
    assert stat.S_ISCHR(os.lstat("/dev/null").st_mode)
    with pytest.raises(CorelaneError, match="Is a directory"):
        linking.link([], tmp_path)
    assert os.listdir(tmp_path) == ["out.so"]
