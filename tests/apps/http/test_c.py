"""C programs: connections that are fed anything, under the sanitizers too; OpenSSL as it is declared here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import soak

from corelane.apps._native import lib

Make = Callable[..., Callable[..., str]]


@pytest.fixture(autouse=True)
def _needs_llhttp() -> None:
    if not lib.cl_http_built():
        pytest.skip("needs llhttp: apt-get install node-llhttp, and build again")


def test_pieces_of_anything(c_program: Make, seed: int) -> None:
    rounds = soak.examples(3000, 300_000)
    assert f"{rounds} streams" in c_program("tests/apps/http/c/fuzz_http.c", one_thread=True)(rounds, seed)


def test_threads_that_share_a_cache(c_program: Make, seed: int, tmp_path: Path) -> None:
    rounds = soak.examples(1000, 30_000)
    assert "files" in c_program("tests/apps/http/c/cache_stress.c")(tmp_path, 3, rounds, seed)


@pytest.mark.soak(takes_s=60)
def test_fuzz(c_fuzzer: Make) -> None:
    """By libFuzzer, for which llhttp alone compiles for 20 s; make test has the mutations above."""
    run = c_fuzzer("tests/apps/http/c/fuzz_http.c", cflags=["-DFUZZER"])
    run("-runs=100000", "-seed=1", "-max_len=1500", "-max_total_time=40")


def test_tls_in_pieces(c_program: Make, seed: int, certificate: tuple[Path, Path]) -> None:
    rounds = soak.examples(60, 3000)
    assert "answered" in c_program("tests/apps/http/c/tls_pieces.c", one_thread=True)(*certificate, rounds, seed)


def test_openssl_is_declared_as_its_headers_do(c_program: Make) -> None:
    if not Path("/usr/include/openssl/ssl.h").exists():
        pytest.skip("needs OpenSSL's headers: apt-get install libssl-dev")
    c_program("tests/apps/http/c/openssl_types.c", sources=[], libs=("-lssl", "-lcrypto"))()
