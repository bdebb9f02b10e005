"""A real Prometheus scrapes what `metrics --listen` serves, and runs what the dashboard asks it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.ports import free_port

from corelane.cli import exposition, metrics

from .test_exposition import ALLOCATOR, expressions
from .test_metrics import STATS

CONFIG = """
global: {{scrape_interval: 100ms, scrape_timeout: 100ms}}
scrape_configs: [{{job_name: corelane, static_configs: [{{targets: ["{target}"]}}]}}]
"""


class Prometheus:
    """One that scrapes a server of ours."""

    def __init__(self, folder: Path, target: str, *flags: str) -> None:
        if shutil.which("prometheus") is None:
            pytest.skip("needs prometheus: apt-get install prometheus")
        (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
        self._at = f"127.0.0.1:{free_port()}"
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address={self._at}", "--log.level=error", *flags]
        self._said = (folder / "said").open("w")
        self._process = subprocess.Popen(command, stdout=self._said, stderr=self._said)

    def query(self, text: str) -> list[dict[str, Any]]:
        """What a query gives now; AssertionError if it is no query."""
        words = urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(f"http://{self._at}/api/v1/query?{words}", timeout=60) as answer:
            told = json.load(answer)
        assert told["status"] == "success", (text, told)
        found: list[dict[str, Any]] = told["data"]["result"]
        return found

    def scraped(self) -> bool:
        """Whether it has scraped us, and liked it."""
        assert self._process.poll() is None, Path(self._said.name).read_text()
        try:
            return [row["value"][1] for row in self.query("up")] == ["1"]
        except OSError:  # it is not there yet
            return False

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._said.close()


@pytest.fixture(params=["native", "classic"])
def prometheus(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prometheus]:
    """With and without native histograms: it asks for another format then."""
    stats = STATS | {"cores": STATS["cores"] | {"allocators": [ALLOCATOR]}}
    monkeypatch.setattr(metrics, "snapshot", lambda _path: stats)
    kinds: list[str] = []
    monkeypatch.setattr(exposition, "wanted", lambda accept: kinds.append(chosen(accept)) or kinds[-1])
    flags = ["--enable-feature=native-histograms"] if request.param == "native" else []
    with metrics.Server(("127.0.0.1", 0), "anywhere") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started = Prometheus(tmp_path, "{}:{}".format(*server.server_address[:2]), *flags)
        try:
            wait_until(started.scraped, 60.0, "a scrape")
            assert set(kinds) == {exposition.PROTOBUF if flags else exposition.OPENMETRICS}
            yield started
        finally:
            started.close()
            server.shutdown()


chosen = exposition.wanted


@pytest.mark.soak(takes_s=7)  # it waits for 5 s before it scrapes
def test_histograms_and_the_dashboards_queries(prometheus: Prometheus, request: pytest.FixtureRequest) -> None:
    native = request.node.callspec.params["prometheus"] == "native"
    which = "corelane_service_latency_seconds"
    of = which if native else f"{which}_bucket"
    ((_, told),) = [row["value"] for row in prometheus.query(f"histogram_quantile(0.5, {of})")]
    assert 2.5e-6 <= float(told) <= 5.5e-6
    count = f"histogram_count({which})" if native else f"{which}_count"
    assert [row["value"][1] for row in prometheus.query(count)] == ["7"]
    found = prometheus.query('corelane_app_dropped_total{app="kv"}')
    drops = {row["metric"]["reason"]: row["value"][1] for row in found}
    assert drops == {"rx_dropped_ring_full": "2", "dropped_udp_checksum": "8"}
    for text in expressions():
        prometheus.query(text.replace("$__rate_interval", "1m").replace("$app", ".*"))
