"""Kafka's ``zookeeper.ssl`` properties become a TLS context; no server is needed to see what is in it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from aiocontroller.config import load_config
from aiocontroller.zookeeper.securing import tls_context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``a.pem`` and ``b.pem``, of authorities a and b."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")
    for name in "ab":
        made = f"-subj /CN={name} -keyout {folder}/key.pem -out {folder}/{name}.pem"
        subprocess.run(
            f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 {made}".split(), check=True, capture_output=True
        )
    return folder


def context_of(**properties: str) -> ssl.SSLContext:
    overrides = {"zookeeper.connect": "h:1", "zookeeper.ssl.client.enable": "true"}
    overrides |= {f"zookeeper.ssl.{key.replace('_', '.')}": value for key, value in properties.items()}
    context = tls_context(load_config(overrides=overrides)[0])
    assert context is not None
    return context


def authorities(context: ssl.SSLContext) -> list[str]:
    return [dict(part[0] for part in found["subject"])["commonName"] for found in context.get_ca_certs()]


def test_only_authorities_in_the_truststore_are_trusted_and_without_one_the_systems(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "a.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    assert authorities(context_of()) == ["a"]
    assert authorities(context_of(truststore_location=str(certificates / "b.pem"))) == ["b"]


@pytest.mark.parametrize(
    "properties, lowest, highest",
    [
        ({}, "TLSv1_2", "MAXIMUM_SUPPORTED"),
        ({"protocol": "TLSv1.3"}, "TLSv1_3", "MAXIMUM_SUPPORTED"),
        ({"enabled_protocols": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"enabled_protocols": "TLSv1.3,TLSv1.2"}, "TLSv1_2", "TLSv1_3"),
    ],
)
def test_protocols_are_those_that_are_enabled(properties: dict[str, str], lowest: str, highest: str) -> None:
    context = context_of(**properties)
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)


@pytest.mark.parametrize("algorithm, checked", [(None, True), ("HTTPS", True), ("", False)])
def test_the_servers_name_is_checked_unless_that_is_switched_off(algorithm: str | None, checked: bool) -> None:
    context = context_of(**({} if algorithm is None else {"endpoint_identification_algorithm": algorithm}))
    assert context.check_hostname is checked
    assert context.verify_mode is ssl.CERT_REQUIRED
