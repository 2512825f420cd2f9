"""`import_from_path`: imports the modules that lie beside a checkpoint's code."""

from __future__ import annotations

import contextlib
import importlib
import sys
from os import PathLike
from pathlib import Path
from typing import Iterator, Set, Union


@contextlib.contextmanager
def import_from_path(path: Union[str, PathLike[str]]) -> Iterator[None]:
    """Let a folder's modules be imported: `with import_from_path(folder): import model_def`.

    They come before all others of their names. Those that were imported before are back afterwards, so that the same
    module of several checkpoints can be imported in turn.

    Args:
        path: The folder.
    """
    folder = Path(path).resolve()
    names = {each.stem for each in folder.glob("*.py")} | {each.parent.name for each in folder.glob("*/__init__.py")}

    def ours() -> Set[str]:
        return {name for name in sys.modules if name.partition(".")[0] in names}

    before = {name: sys.modules.pop(name) for name in ours()}
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in ours():
            del sys.modules[name]
        sys.modules.update(before)
