"""The certificate of the daemon, checked before the port is taken: what OpenSSL says of a bad one
names neither the file nor the fault."""

from __future__ import annotations

import ssl
from typing import NoReturn

from runner.server.sockets import ListenError
from runner.settings import Settings, source


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What the daemon encrypts with; None without a certificate. Raises ListenError if it cannot
    speak what the settings say."""
    certificate = settings.tls_cert
    if certificate is None:
        if settings.tls_key is not None:
            raise ListenError("HEARTH_TLS_KEY needs HEARTH_TLS_CERT, the file with its certificate")
        if settings.host.scheme == "https":
            raise ListenError(
                f"{source('host')}={settings.host.url} asks for HTTPS; set HEARTH_TLS_CERT to a "
                "PEM file with a certificate, or use http://"
            )
        return None
    key = settings.tls_key or certificate

    def encrypted() -> NoReturn:
        raise ListenError(f"the private key in {key} is encrypted; use one without a passphrase")

    for variable, path, what, mark in (
        ("HEARTH_TLS_CERT", certificate, "certificate", b"-----BEGIN CERTIFICATE-----"),
        ("HEARTH_TLS_KEY", key, "private key", b"PRIVATE KEY-----"),
    ):
        try:
            if mark not in path.read_bytes():
                raise ListenError(f"{path} holds no PEM {what}; set {variable} to the file with it")
        except OSError as error:
            raise ListenError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, encrypted)
    except ssl.SSLError as error:
        reason = (error.reason or "damaged").replace("_", " ").lower()
        raise ListenError(
            f"the certificate in {certificate} and the private key in {key} cannot be used: "
            f"{reason}"
        ) from None
    return context
