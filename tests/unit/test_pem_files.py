"""Files of certificates are opened only if reading them ends."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aiocontroller.config import ConfigError, load_config
from aiocontroller.core.ids import Endpoint
from aiocontroller.pem_files import ended_certificates, load_pem
from aiocontroller.security import Security
from aiocontroller.zookeeper.securing import tls_context
from tests.unit.authorizer.der import certificate, element


def test_what_is_wrong_is_named_and_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """Kubernetes' secrets are links."""
    path = tmp_path / "own.pem"
    with pytest.raises(ConfigError, match=rf"^a\.location: found '{path}' \(.*No such file.*\), expected PEM$"):
        load_pem("a.location", str(path), "PEM", path.read_text)
    (tmp_path / "data").write_text("x")
    path.symlink_to("data")
    read: list[str] = []
    load_pem("a.location", str(path), "PEM", lambda: read.append(path.read_text()))
    assert read == ["x"]


@pytest.mark.timeout(60)
def test_a_pipe_a_device_and_a_folder_are_not_opened(tmp_path: Path) -> None:
    """Opening a pipe without a writer does not return, and the event loop reads these files."""
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero", str(tmp_path)):
        found = rf"found '{path}' \(not a regular file\)"
        broken = {"ssl.keystore.location": path, "ssl.truststore.location": path}
        security = Security(load_config(overrides=broken)[0])
        for read, key in ((security.server, "ssl.keystore"), (security.client, "ssl.truststore")):
            with pytest.raises(ConfigError, match=rf"{key}\.location: {found}"):
                read(Endpoint("SSL", "h", 1, "SSL"))
        for key in ("zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"):
            config, _ = load_config(overrides={"zookeeper.ssl.client.enable": "true", key: path})
            with pytest.raises(ConfigError, match=rf"{key}: {found}"):
                tls_context(config)


def test_each_of_our_certificates_that_has_ended_is_named(tmp_path: Path) -> None:
    def pem(name: str, ends: str) -> str:
        made = certificate(element(0x30), element(0x17, ends.encode()))
        (tmp_path / name).write_text("-----BEGIN PRIVATE KEY-----\n" + ssl.DER_cert_to_PEM_cert(made))
        return str(tmp_path / name)

    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    (tmp_path / "cut.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    os.mkfifo(tmp_path / "pipe.pem")
    ended = pem("ended.pem", "260101000000Z")
    config, _ = load_config(
        overrides={
            "ssl.keystore.location": ended,
            "listener.name.a.ssl.keystore.location": pem("valid.pem", "260101000001Z"),
            "listener.name.b.ssl.keystore.location": str(tmp_path / "store.jks"),
            "listener.name.c.ssl.keystore.location": str(tmp_path / "cut.pem"),
            "listener.name.d.ssl.keystore.location": str(tmp_path / "pipe.pem"),
            "listener.name.e.ssl.keystore.location": str(tmp_path / "none.pem"),
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": ended,
        }
    )
    message = f"the certificate in {ended!r} ended on 2026-01-01 at 00:00:00 UTC: others refuse it"
    assert [*ended_certificates(config, datetime(2026, 1, 1, tzinfo=UTC))] == [
        f"ssl.keystore.location: {message}",
        f"zookeeper.ssl.keystore.location: {message}",
    ]
