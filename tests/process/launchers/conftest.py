from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.process.runtime.conftest import stage

__all__ = ["find_python", "stage"]


def find_python(module: str, variable: str, environment: str) -> str | None:
    """A Python that has `module`: the one that `variable` names, or that of an environment in the tests' cache. Plain
    pytest has none; `scripts/test` makes them."""
    for candidate in (os.environ.get(variable), f"/var/cache/trainmaster/{environment}/bin/python"):
        if candidate and Path(candidate).exists():
            looks = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
            if subprocess.run([candidate, "-c", looks]).returncode == 0:
                return candidate
    return None
