"""Makes a package visible as pip would, by its entry points, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainmaster import plugins
from trainmaster.config import user_options

CACHES = (plugins.load, user_options.sections_of_plugins, user_options.model_of_sections)


def write_metadata(folder: Path, name: str, points: str) -> None:
    """The metadata of an installed package `name`, below `folder`."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


@contextmanager
def visible(*folders: Path) -> Iterator[None]:
    """Modules and metadata in `folders` can be found; what was found before is forgotten, here and at the end."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in folders:
            patch.syspath_prepend(str(folder))
        for cached in CACHES:
            cached.cache_clear()
        try:
            yield
        finally:
            for cached in CACHES:
                cached.cache_clear()
