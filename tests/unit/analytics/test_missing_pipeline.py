"""Without the extra ``pipeline``, ``analyze`` says what to install before it has computed anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aiocontroller.analytics.dataframes import DUCKDB
from aiocontroller.analytics.job import Job, perform
from aiocontroller.analytics.session import PipelineMissingError


@pytest.mark.parametrize("missing", ["sqlglot", "duckdb", "jinja2"])
def test_what_is_missing_is_named_before_anything_is_computed(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ("aiocontroller.analytics.small", "aiocontroller.analytics.report", "aiocontroller.pages", f"{missing}.")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    job = Job((str(tmp_path),), str(tmp_path / "out"), report=str(tmp_path / "page.html"), engine=DUCKDB)
    with pytest.raises(PipelineMissingError, match=rf"{missing}.*pip install 'aiocontroller\[pipeline\]'"):
        perform(job, print)
    assert not (tmp_path / "out").exists()
