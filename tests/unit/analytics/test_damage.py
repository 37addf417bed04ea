"""What a look through a whole file finds, wherever pieces end."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.analytics import damage, reading
from aiocontroller.analytics.source_files import SourceFile

ID = "RFdfHY2XTqOdVV1zfat4PA"
LINE = f"INFO Cluster ID = {ID} (kafka.server.KafkaServer)\n"


@pytest.mark.parametrize("before", range(64))
def test_a_cluster_id_across_two_pieces_is_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 64)
    log = tmp_path / "server.log"
    log.write_text("x" * before + LINE + "INFO started (kafka.server.KafkaServer)\n")
    file = SourceFile(f"file:{log}", "server.log", log.stat().st_size, 0, source="server.log")
    looked = damage.look_through(None, file, lambda: tmp_path)  # type: ignore[arg-type]
    assert looked.cluster_ids == {ID}
