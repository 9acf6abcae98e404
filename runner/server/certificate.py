"""The certificate of the daemon, checked before the port is taken: what OpenSSL says of a bad one
names neither the file nor the fault."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from runner.server.sockets import ListenError
from runner.settings import Settings, source


def check_certificate(settings: Settings) -> None:
    """Raises ListenError unless the daemon can speak what the settings say."""
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is None:
        if key is not None:
            raise ListenError("HEARTH_TLS_KEY needs HEARTH_TLS_CERT, the file with its certificate")
        if settings.host.scheme == "https":
            raise ListenError(
                f"{source('host')}={settings.host.url} asks for HTTPS; set HEARTH_TLS_CERT to a "
                "PEM file with a certificate, or use http://"
            )
        return
    if b"-----BEGIN CERTIFICATE-----" not in _read("HEARTH_TLS_CERT", certificate):
        raise ListenError(f"HEARTH_TLS_CERT: {certificate} holds no PEM certificate")
    variable, key = ("HEARTH_TLS_CERT", certificate) if key is None else ("HEARTH_TLS_KEY", key)
    if b"PRIVATE KEY-----" not in _read(variable, key):
        raise ListenError(
            f"{variable}: {key} holds no private key; set HEARTH_TLS_KEY to the PEM file that does"
        )
    _check_pair(certificate, key)


def _check_pair(certificate: Path, key: Path) -> None:
    def encrypted() -> NoReturn:
        raise ListenError(f"the private key in {key} is encrypted; use one without a passphrase")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ListenError(
                f"the private key in {key} does not belong to the certificate in {certificate}"
            ) from None
        reason = (error.reason or "damaged").replace("_", " ").lower()
        raise ListenError(
            f"the certificate in {certificate} or the private key in {key} cannot be used: {reason}"
        ) from None


def _read(variable: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ListenError(f"{variable}: {path} cannot be read: {error.strerror}") from None
