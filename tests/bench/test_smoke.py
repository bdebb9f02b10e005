"""Every benchmark runs in a fraction of its time and leaves a whole document and a plot. No speed is asserted."""

import subprocess
import sys
from pathlib import Path

import pytest

from corelane.bench import registry
from corelane.bench.harness import document as doc

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")

ENTRIES = registry.entries()


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_benchmark_leaves_a_whole_document(name: str, tmp_path: Path) -> None:
    out, png = tmp_path / "x.json", tmp_path / "x.png"
    command = [sys.executable, "-m", "corelane.cli.main", "bench", name, "--seconds", "0.5"]
    done = subprocess.run(
        [*command, "--json", str(out), "--plot", str(png)], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    document = doc.read(out)
    assert document["bench"] == name
    assert set(document["figures"]) >= set(ENTRIES[name].figures)
    assert document["arms"] or document["settings"]["skipped"]
    assert document["canary"]["seconds"] > 0
    if document["arms"]:
        assert png.read_bytes().startswith(b"\x89PNG")
    else:
        assert "no plot written" in done.stdout
        assert not png.exists()
