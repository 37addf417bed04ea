"""Files of the tables' folder are the same in every locale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aiocontroller.analytics.files import LocalFiles

TEXT = "größer → Ω"
WRITE_AND_READ = f"""
import sys
from pathlib import Path
from aiocontroller.analytics.files import LocalFiles

files = LocalFiles(Path(sys.argv[1]))
assert files.read("ours") == {TEXT!a}
files.write_new("theirs", {TEXT!a})
"""


def test_text_is_utf_8_whatever_the_locale_says(tmp_path: Path) -> None:
    LocalFiles(tmp_path).write_new("ours", TEXT)
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", WRITE_AND_READ, str(tmp_path)], env=ascii_only, check=True, timeout=120)
    assert (tmp_path / "theirs").read_bytes() == TEXT.encode()
