"""Certificates that nobody vouches for, made on the spot."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

from tests.system import need


def self_signed(folder: Path, names: str) -> Path:
    """A self-signed certificate with its key, in one file."""
    need("openssl")
    path = folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=camera", "-addext", f"subjectAltName={names}", "-keyout", str(folder / "key"), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    path.write_bytes(path.read_bytes() + (folder / "key").read_bytes())
    return path


def server_context(certificate: Path) -> ssl.SSLContext:
    """A server's side of TLS with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
