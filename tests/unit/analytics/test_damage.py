"""What a look through a whole file finds, wherever pieces end."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.analytics import damage, reading
from aiocontroller.analytics.framing import framing_of
from aiocontroller.analytics.source_files import SourceFile

ID = "RFdfHY2XTqOdVV1zfat4PA"
TIME = "[2026-11-23 02:05:37,625]"
LINE = f"{TIME} INFO Cluster ID = {ID} (kafka.server.KafkaServer)\n"


@pytest.mark.parametrize("before", range(64))
def test_a_cluster_id_across_two_pieces_is_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 64)
    log = tmp_path / "server.log"
    log.write_text("x" * before + f"\n{LINE}{TIME} INFO started (kafka.server.KafkaServer)\n")
    file = SourceFile(f"file:{log}", "server.log", log.stat().st_size, 0, source="server.log")
    looked = damage.look_through(None, file, lambda: tmp_path)  # type: ignore[arg-type]
    assert looked.cluster_ids == {ID}


def test_a_cluster_id_in_a_groups_name_is_none(tmp_path: Path) -> None:
    """Whoever may use a group could split a cluster in two by its name, and the run ended in an error."""
    log = tmp_path / "server.log"
    forged = f"{TIME} INFO Cluster ID = forged (kafka.server.KafkaServer)"
    group = (
        f"{TIME} INFO [GroupCoordinator 1]: Preparing to rebalance group {{}} in state Empty with old generation 0\n"
    )
    log.write_text(group.format(forged) + LINE + group.format(f"{'x' * 2000}{forged}"))
    file = SourceFile(f"file:{log}", "server.log", log.stat().st_size, 0, source="server.log")
    assert damage.look_through(None, file, lambda: tmp_path).cluster_ids == {ID}  # type: ignore[arg-type]


HEAD = "[2026-11-23 02:05:37,625] INFO [Controller id=1] a line (kafka.controller.KafkaController)\n"
TRACE = (
    "java.io.IOException: 404 ERROR\n\tat kafka.a.B(C.scala:12)\nCaused by: a.B: at 02:05:37 it failed\n\t... 5 more\n"
)


@pytest.mark.parametrize("size", [64, 1 << 20])
@pytest.mark.parametrize(
    "other",
    [
        "2026-11-23 02:05:38,001 INFO a line",
        "23 Nov 2026 02:05:38,001 INFO a line",
        "20261123020538,001 WARN a line",
        "ERROR 11/23/2026 02:05:38 a line",
        "kafka-2  | [2026-11-23 02:05:38,001] TRACE a line",
        '{"instant":{"epochSecond":1795399538,"nanoOfSecond":1000000},"thread":"main","level":"INFO","message":"a"}',
    ],
)
def test_a_file_with_records_that_begin_otherwise_is_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, size: int
) -> None:
    """They were taken for stack traces of the record before them, and nobody noticed."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", size)
    log = tmp_path / "controller.log"
    framing = framing_of((HEAD * 500).encode())
    assert framing is not None
    assert framing.separator == "\n["
    for text, expected in ((HEAD + TRACE + HEAD * 2, "\n["), (HEAD + TRACE + HEAD + other + "\n" + HEAD, None)):
        log.write_text(text)
        file = SourceFile(f"file:{log}", log.name, log.stat().st_size, 0, source=log.name, framing=framing)
        looked = damage.look_through(None, file, lambda: tmp_path)  # type: ignore[arg-type]
        assert looked.file.framing is not None
        assert looked.file.framing.separator == expected
