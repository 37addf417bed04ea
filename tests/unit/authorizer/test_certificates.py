"""Fields of certificates, from bytes put together here and from a certificate of OpenSSL's."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aiocontroller.authorizer.certificates import not_after, subject
from tests.unit.authorizer.der import certificate, element

NAME = element(0x30)


@pytest.mark.parametrize(
    "tag, text, year",
    [(0x17, "491231235959Z", 2049), (0x17, "500101000000Z", 1950), (0x17, "991231235959Z", 1999),
     (0x18, "20500101000000Z", 2050), (0x18, "99991231235959Z", 9999)],
)  # fmt: skip
def test_a_certificate_says_until_when_it_is_valid(tag: int, text: str, year: int) -> None:
    ends = not_after(certificate(NAME, element(tag, text.encode())))
    assert (ends.year, ends.tzinfo) == (year, UTC)
    assert subject(certificate(NAME, element(tag, text.encode()))) == NAME


@pytest.mark.parametrize(
    "ends", [element(0x17, b"soon"), element(0x17, b"\xff"), element(0x18, b""), b"", b"\x17\x7f1"]
)
def test_one_that_does_not_is_an_error(ends: bytes) -> None:
    with pytest.raises((IndexError, ValueError)):
        not_after(certificate(NAME, ends))
    whole = certificate(NAME, element(0x17, b"491231235959Z"))
    for length in range(len(whole)):
        with pytest.raises((IndexError, ValueError)):
            not_after(whole[:length])


def test_openssl_says_the_same(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    made = f"-subj /CN=a -keyout {tmp_path}/key -out {tmp_path}/pem"
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 40000 {made}"
    subprocess.run(command.split(), check=True, capture_output=True)
    printed = subprocess.run(
        [openssl, "x509", "-in", tmp_path / "pem", "-noout", "-enddate"], check=True, capture_output=True
    )
    seconds = ssl.cert_time_to_seconds(printed.stdout.decode().strip().removeprefix("notAfter="))
    found = not_after(ssl.PEM_cert_to_DER_cert((tmp_path / "pem").read_text()))
    assert found == datetime.fromtimestamp(seconds, UTC)
