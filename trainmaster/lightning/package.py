"""Which of Lightning's two packages the script uses: `lightning`, or `pytorch_lightning` with the same classes under
another name. Objects of one do not fit the other.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def _package() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:  # what the script has imported
            return sys.modules[name]
    try:
        return importlib.import_module("lightning.pytorch")
    except ImportError:
        return importlib.import_module("pytorch_lightning")


pl = _package()
FRAMEWORK = "lightning"
VERSION = str(pl.__version__)
LOWEST = (2,)
