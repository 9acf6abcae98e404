"""HTTPS: what is said when a certificate, its key or the scheme is wrong, on both sides."""

from __future__ import annotations

import datetime
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.conftest import StartDaemon, daemon_process
from tests.integration.cli_process import end, environment, free_address, hearth, of_daemon


@dataclass(frozen=True)
class Pem:
    """A certificate, its key, and a file with both."""

    certificate: Path
    key: Path
    both: Path


def certificate(
    folder: Path, address: str = "127.0.0.1", days: int = 1, passphrase: bytes = b""
) -> Pem:
    """Makes one for an IP address that expires in some days."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hearth")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase)
    texts = (
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ),
    )
    folder.mkdir()
    pem = Pem(folder / "cert.pem", folder / "key.pem", folder / "both.pem")
    for path, text in zip((pem.certificate, pem.key, pem.both), (*texts, b"".join(texts)),
                          strict=True):  # fmt: skip
        path.write_bytes(text)
    return pem


@pytest.fixture
def good(tmp_path: Path) -> Pem:
    """A certificate for 127.0.0.1."""
    return certificate(tmp_path / "good")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"TLS_CERT": "{tmp}/none.pem"}, "HEARTH_TLS_CERT: {tmp}/none.pem cannot be read: No such"),
        ({"TLS_CERT": "{both}", "TLS_KEY": "{tmp}"}, "HEARTH_TLS_KEY: {tmp} cannot be read: Is a"),
        ({"TLS_CERT": "{key}"}, "{key} holds no PEM certificate; set HEARTH_TLS_CERT to"),
        ({"TLS_CERT": "{cert}"}, "{cert} holds no PEM private key; set HEARTH_TLS_KEY to the"),
        (
            {"TLS_CERT": "{cert}", "TLS_KEY": "{other}"},
            "private key in {other} cannot be used: key values mismatch",
        ),
        ({"TLS_CERT": "{cert}", "TLS_KEY": "{secret}"}, "the private key in {secret} is encrypted"),
        ({"TLS_CERT": "{torn}"}, "the certificate in {torn} and the private key in {torn} cann"),
        ({"TLS_KEY": "{key}"}, "HEARTH_TLS_KEY needs HEARTH_TLS_CERT"),
        ({"HOST": "https://127.0.0.1:0"}, "HEARTH_HOST=https://127.0.0.1:0 asks for HTTPS"),
    ],
)
def test_a_daemon_that_cannot_speak_https_names_the_file_and_the_fault(
    good: Pem, tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    torn = tmp_path / "torn.pem"
    torn.write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n")
    names = {
        "tmp": tmp_path,
        "cert": good.certificate,
        "key": good.key,
        "both": good.both,
        "torn": torn,
        "other": certificate(tmp_path / "other").key,
        "secret": certificate(tmp_path / "secret", passphrase=b"x").key,
    }
    env = {f"HEARTH_{name}": text.format(**names) for name, text in variables.items()}
    process = daemon_process(tmp_path / "home", env)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.format(**names) in words
    assert len(words.splitlines()) == 1, words


def test_a_certificate_makes_it_https(start_daemon: StartDaemon, good: Pem) -> None:
    daemon = start_daemon(env={"HEARTH_TLS_CERT": str(good.both)})
    env = {**of_daemon(daemon), "HEARTH_TLS_CERT": str(good.both)}
    assert hearth(env, "key", "add", "other").returncode == 0
    listed = hearth(env, "list")
    assert listed.returncode == 0, listed.stderr
    assert "echo" in listed.stdout
    short = ("--clients", "2", "--output-tokens", "4", "--prompt-tokens", "9")
    measured = hearth(env, "bench", "echo", *short, "--json")
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["runs"][0]["summary"]["prompt_tokens_per_s"] > 0
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"https://127.0.0.1:{daemon.port}/health")


def test_a_client_says_why_https_fails_and_what_to_do(
    start_daemon: StartDaemon, good: Pem, tmp_path: Path
) -> None:
    daemon = start_daemon(
        env={"HEARTH_TLS_CERT": str(good.certificate), "HEARTH_TLS_KEY": str(good.key)}
    )
    trusted = {"HEARTH_TLS_CERT": str(good.certificate)}
    other = {"HEARTH_TLS_CERT": str(certificate(tmp_path / "other").certificate)}
    plain = {"HEARTH_HOST": f"127.0.0.1:{daemon.port}"}
    name = {"HEARTH_HOST": f"https://localhost:{daemon.port}"}
    for more, said in (
        ({}, "its certificate is not trusted (self-signed certificate); set HEARTH_TLS_CERT to"),
        (other, "other/cert.pem holds another one"),
        (plain, f"it speaks HTTPS; set HEARTH_HOST=https://127.0.0.1:{daemon.port}, and HEARTH_T"),
        (trusted | name, "its certificate is not for localhost; set HEARTH_HOST to a name"),
        ({"HEARTH_TLS_CERT": str(tmp_path / "none")}, f"{tmp_path / 'none'} cannot be read: No su"),
        ({"HEARTH_TLS_CERT": str(good.key)}, f"{good.key} holds no PEM certificate"),
    ):
        refused = hearth({**of_daemon(daemon), "HEARTH_NO_AUTOSTART": "0", **more}, "list")
        assert refused.returncode == 1
        assert said in refused.stderr
        assert "_ssl.c" not in refused.stderr
    second = daemon_process(tmp_path / "home", plain)
    assert f"process {daemon.pid}, models in" in second.communicate(timeout=60)[1]


def test_an_expired_certificate_is_told(start_daemon: StartDaemon, tmp_path: Path) -> None:
    old = certificate(tmp_path / "old", days=-2)
    daemon = start_daemon(env={"HEARTH_TLS_CERT": str(old.both)})
    refused = hearth({**of_daemon(daemon), "HEARTH_TLS_CERT": str(old.both)}, "list")
    assert "its certificate has expired; make a new one for the daemon" in refused.stderr


def test_https_spoken_to_a_daemon_that_does_not_is_told(
    start_daemon: StartDaemon, good: Pem
) -> None:
    daemon = start_daemon()
    env = {**of_daemon(daemon), "HEARTH_TLS_CERT": str(good.both), "HEARTH_NO_AUTOSTART": "0"}
    refused = hearth(env, "list")
    assert "it does not speak HTTPS; use http:// in HEARTH_HOST" in refused.stderr


def test_a_daemon_started_by_a_command_finds_its_certificate_from_any_folder(
    good: Pem, tmp_path: Path
) -> None:
    env = environment(tmp_path / "home", free_address(), HEARTH_TLS_CERT="both.pem",
                      HEARTH_NO_AUTOSTART="0")  # fmt: skip
    listed = hearth(env, "list", cwd=good.both.parent)
    end(json.loads((tmp_path / "home" / "state" / "daemon.json").read_text())["pid"])
    assert listed.returncode == 0, listed.stderr


def test_a_daemon_whose_certificate_its_own_command_cannot_trust_does_not_stay(
    tmp_path: Path,
) -> None:
    pem, home = certificate(tmp_path / "far", "192.0.2.1"), tmp_path / "home"
    env = environment(home, free_address(), HEARTH_TLS_CERT=str(pem.both), HEARTH_NO_AUTOSTART="0")
    refused = hearth(env, "list")
    assert (refused.returncode, "is not for 127.0.0.1" in refused.stderr) == (1, True)
    assert "stopping" in (home / "state" / "daemon.log").read_text()
    assert not (home / "state" / "daemon.json").exists()
