"""A pytest plugin that imports one mutant of kafkas.toml, named by the environment, instead of its module."""

from __future__ import annotations

import os
import sys

from tests.mutation.mutants import Mutant, kafkas
from tests.mutation.plugin import Importer

ENVIRONMENT = "ONE_MUTANT"

if ENVIRONMENT in os.environ:
    _name = os.environ[ENVIRONMENT]
    sys.meta_path.insert(0, Importer(Mutant(f"kafkas: {_name}", kafkas()[_name].module, (0, 0))))
