"""Types of options that refuse values which click accepts, but which would fail, or never end, later."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click


class Finite(click.FloatRange):
    """A finite number within a range; click accepts nan in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; BadParameter for others."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class WritableFile(click.Path):
    """A file that is written when the command ends, which may be an hour later."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its path; BadParameter if it could not be written now."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        folder = path.absolute().parent
        if path.exists():
            return path
        if not folder.is_dir():
            self.fail(f"Directory '{folder}' does not exist.", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"Directory '{folder}' is not writable.", param, ctx)
        return path
