"""What people use with memcached, against our TCP port: memccapable, pymemcache, python-memcached and pylibmc."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kvserver import OURS, PORT, KvServer, kv_server

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def server() -> Iterator[KvServer]:
    with kv_server() as made:
        yield made


def needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        pytest.skip(f"needs {module}: pip install {package}")


@pytest.mark.parametrize("protocol", ["-a", "-b"], ids=["ascii", "binary"])
def test_memccapable(server: KvServer, protocol: str) -> None:
    """Each of its tests passes."""
    if shutil.which("memccapable") is None:
        pytest.skip("needs memccapable: apt-get install libmemcached-tools")
    done = server.space.run(["memccapable", "-h", OURS, "-p", str(PORT), protocol, "-t", "60"], timeout_s=120)
    verdicts = [line for line in done.stdout.splitlines() if line.endswith(("[pass]", "[FAIL]"))]
    assert len(verdicts) > 20, done.stdout + done.stderr
    assert not [line for line in verdicts if line.endswith("[FAIL]")], done.stdout
    assert done.returncode == 0


def test_the_tools_of_libmemcached(server: KvServer, tmp_path: Path) -> None:
    """Some ask for the version first, and want one that they know how to read."""
    if shutil.which("memcstat") is None:
        pytest.skip("needs memcstat: apt-get install libmemcached-tools")
    (tmp_path / "item").write_text("a value")

    def run(tool: str, *words: str) -> str:
        done = server.space.run([tool, f"--servers={OURS}:{PORT}", *words], timeout_s=60)
        assert (done.returncode, done.stderr.strip()) == (0, ""), tool
        return done.stdout

    run("memcping")
    run("memccp", str(tmp_path / "item"))
    assert "a value" in run("memccat", "item")
    run("memcexist", "item")
    run("memctouch", "--expire=100", "item")
    assert "item" in run("memcdump").splitlines()
    assert "curr_items" in run("memcstat")
    run("memcrm", "item")
    assert "item" not in run("memcdump").splitlines()


def test_pymemcache(server: KvServer) -> None:
    base = needed("pymemcache.client.base", "pymemcache")
    meets = needed("pymemcache.exceptions", "pymemcache")
    with server.space.entered():
        client = base.Client((OURS, PORT), timeout=30, connect_timeout=30)
        client.flush_all()
        assert client.set("a", "value", noreply=False)
        assert client.get("a") == b"value"
        assert client.set_many({f"k{i}": b"v" * i for i in range(200)}) == []
        got = client.get_many([f"k{i}" for i in range(201)])
        assert got == {f"k{i}": b"v" * i for i in range(200)}
        _, unique = client.gets("a")
        assert client.cas("a", b"other", unique, noreply=False)
        assert client.cas("a", b"late", unique, noreply=False) is False
        assert client.add("a", b"x", noreply=False) is False
        assert client.replace("a", b"5", noreply=False)
        assert client.append("a", b"0", noreply=False)
        assert client.prepend("a", b"1", noreply=False)
        assert (client.incr("a", 7), client.decr("a", 200)) == (157, 0)
        assert client.touch("a", 100, noreply=False)
        assert client.get("a") == b"0  "
        assert client.delete("a", noreply=False)
        assert client.incr("a", 1) is None
        large = bytes(1 << 20)
        with pytest.raises(meets.MemcacheServerError, match="object too large for cache"):
            client.set("large", large, noreply=False)
        assert client.set("large", large[:-200], noreply=False)
        assert client.get("large") == large[:-200]
        with pytest.raises(meets.MemcacheIllegalInputError):
            client.set("a key", b"x")
        stats = client.stats()
        assert stats[b"curr_connections"] >= 1
        assert client.stats("settings")[b"maxconns"] == 1024
        assert client.version().startswith(b"1.6.18-corelane")
        client.raw_command(b"verbosity 1")
        client.quit()


def test_pymemcache_s_own_tests() -> None:
    """Those against a server, which are in its package. It has memcached's usual memory: they set a lower limit."""
    tests = Path(needed("pymemcache.test", "pymemcache").__file__).parent / "test_integration.py"
    words = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--server", OURS, "--port", str(PORT), str(tests)]
    with kv_server(memory_bytes=64 << 20) as server:
        done = server.space.run([sys.executable, "-m", "pytest", *words], timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 90, done.stdout


def test_python_memcached(server: KvServer) -> None:
    memcache = needed("memcache", "python-memcached")
    with server.space.entered():
        client = memcache.Client([f"{OURS}:{PORT}"], socket_timeout=30, cache_cas=True)
        assert client.flush_all() is None
        assert client.set("a", {"deep": [1, 2.5, None, "text"]})
        assert client.get("a") == {"deep": [1, 2.5, None, "text"]}
        assert client.set_multi({f"k{i}": i for i in range(100)}, key_prefix="p:") == []
        assert client.get_multi([str(f"k{i}") for i in range(100)], key_prefix="p:") == {f"k{i}": i for i in range(100)}
        assert client.gets("a") is not None
        assert client.cas("a", "new")
        assert client.set("n", "10")
        assert (client.incr("n", 5), client.decr("n", 100)) == (15, 0)
        assert client.add("n", "1") == 0
        assert client.append("n", "x")
        assert client.prepend("n", "y")
        assert client.touch("n", 100)
        assert client.get("n") == "y0 x"
        assert client.delete("n") == 1
        assert client.get("n") is None
        assert client.set("packed", "text" * 100_000, min_compress_len=1000)
        assert client.get("packed") == "text" * 100_000
        ((_, stats),) = client.get_stats()
        assert stats["version"].startswith("1.6.18-corelane")
        assert client.get_slab_stats()
        client.disconnect_all()


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_pylibmc(server: KvServer, binary: bool) -> None:
    pylibmc = needed("pylibmc", "pylibmc")
    with server.space.entered():
        behaviors = {"cas": True, "tcp_nodelay": True, "no_block": False}
        client = pylibmc.Client([f"{OURS}:{PORT}"], binary=binary, behaviors=behaviors)
        assert client.flush_all()
        assert client.set("a", ["some", {"thing": 5}])
        assert client.get("a") == ["some", {"thing": 5}]
        assert client.set_multi({f"k{i}": "v" * i for i in range(300)}) == []
        assert client.get_multi([f"k{i}" for i in range(301)]) == {f"k{i}": "v" * i for i in range(300)}
        value, unique = client.gets("a")
        assert value == ["some", {"thing": 5}]
        assert client.cas("a", "new", unique)
        assert not client.cas("a", "late", unique)
        assert not client.add("a", 1)
        assert client.replace("a", "5")
        assert client.set("n", 10)
        assert (client.incr("n", 5), client.decr("n", 100)) == (15, 0)
        if not binary:  # libmemcached waits 5 s for more than any server answers
            assert client.touch("n", 100)
        assert client.append("a", "6")
        assert client.prepend("a", "4")
        assert client.get("a") == "456"
        assert client.delete("a")
        assert not client.delete("a")
        large = b"\0\1" * 500_000
        assert client.set("large", large)
        assert client.get("large") == large
        ((_, stats),) = client.get_stats()
        assert stats["version"].startswith(b"1.6.18-corelane")
        client.disconnect_all()
