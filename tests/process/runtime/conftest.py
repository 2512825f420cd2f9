from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.jobs import StagedJob, make_work
from tests.support.runtime.master import FakeMaster


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., tuple[StagedJob, FakeMaster]]]:
    """`stage(entrypoint, work={...}, context=b"", **job.json)` -> the staged job and its master."""
    made: list[Any] = []

    def make(
        entrypoint: str | list[str],
        *,
        work: dict[str, Any] | None = None,
        context: bytes = b"",
        folder: Path | None = None,
        **job: Any,
    ) -> tuple[StagedJob, FakeMaster]:
        master = FakeMaster(make_work(entrypoint, **(work or {})), context)
        staged = StagedJob(folder or tmp_path / f"job{len(made)}", master, **job)
        made.append((staged, master))
        return staged, master

    yield make
    for staged, master in made:
        staged.clean_up()
        master.close()
