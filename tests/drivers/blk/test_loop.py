"""Loop devices, as sysfs tells of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corelane.drivers.blk import loop


def test_what_is_behind_them_may_have_any_bytes_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are anybody's."""
    for n, name in enumerate((b"/mnt/\xff", b"/mnt/disk", b"/mnt/disk ")):
        folder = tmp_path / f"loop{n}" / "loop"
        folder.mkdir(parents=True)
        (folder / "backing_file").write_bytes(name + b"\n")
        (folder / "offset").write_text(str(4096 * n))
    monkeypatch.setattr(loop, "Path", lambda _where: tmp_path)
    assert loop.parts("/mnt/disk") == [4096]
    assert loop.parts(os.fsdecode(b"/mnt/\xff")) == [0]
