"""A benchmark of which every arm was skipped still ends well: null figures with reasons, no plot, and it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.bench.afxdp import afxdp
from corelane.bench.harness import document as doc
from corelane.cli.main import main

REASON = "needs a moon that is full"


def test_afxdp_without_root_writes_null_figures_and_no_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(afxdp.netns, "missing", lambda: REASON)
    out, png = tmp_path / "x.json", tmp_path / "x.png"
    assert main(["bench", "afxdp", "--seconds", "0.1", "--json", str(out), "--plot", str(png)]) == 0
    said = capsys.readouterr().out
    assert f"no plot written, since nothing was measured (all arms: {REASON})" in said
    assert not png.exists()
    document = doc.read(out)
    assert document["arms"] == []
    assert set(document["figures"]) == set(afxdp.FIGURES)
    for figure in document["figures"].values():
        assert figure["value"] is None
        assert figure["met"] is None
        assert REASON in figure["reason"]
