"""Scripts that are no part of the package, as modules."""

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[2]


def script(folder: str, name: str) -> Any:
    """The script called `name`, which finds those beside it."""
    with patch.object(sys, "path", [str(ROOT / folder), *sys.path]):
        return importlib.import_module(name)
