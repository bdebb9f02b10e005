"""Certificates for TLS, signed by themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """A certificate for names as openssl takes them ("DNS:here", "IP:10.98.0.2"), and its key; PEM files in `folder`.

    Skips the test where there is no openssl.
    """
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")
    made = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={names[0].partition(':')[2]}"]
    command += ["-addext", f"subjectAltName={','.join(names)}", "-out", str(made[0]), "-keyout", str(made[1])]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made
