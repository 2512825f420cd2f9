"""Copies a trial's TensorBoard event files from a local folder to the checkpoint storage."""

from __future__ import annotations

import enum
import logging
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

logger = logging.getLogger("trainmaster.core")


class TensorboardMode(enum.Enum):
    """When event files are copied."""

    AUTO = "AUTO"  # core, after each checkpoint and at the end
    MANUAL = "MANUAL"  # the user, with `upload_tensorboard_files`


def everything(_: Path) -> bool:
    """A selector that takes all files."""
    return True


def unchanged(path: Path, _: int) -> Path:
    """A mangler that keeps all names."""
    return path


class TensorboardFiles:
    """One rank's folder of event files, and the folder they are copied to."""

    def __init__(self, local: Path, target: Optional[Path], rank: int) -> None:
        """`target` is None where nothing is to be copied."""
        self.local = local
        self._target = target
        self._rank = rank
        self._copied: Dict[Path, Tuple[int, int]] = {}  # what is there already: size, time of change (ns)

    def upload(
        self,
        selector: Callable[[Path], bool] = everything,
        mangler: Callable[[Path, int], Path] = unchanged,
    ) -> None:
        """Copy new and changed files. `selector(path)` chooses, `mangler(relative path, rank)` renames."""
        if self._target is None or not self.local.is_dir():
            return
        import shutil  # most trainings write no such files

        self._target.mkdir(mode=0o700, parents=True, exist_ok=True)

        for path in sorted(self.local.rglob("*")):
            if not path.is_file() or not selector(path):
                continue
            status = path.stat()
            state = (status.st_size, status.st_mtime_ns)
            if self._copied.get(path) == state:
                continue
            target = self._target / mangler(path.relative_to(self.local), self._rank)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(path), str(target))
            self._copied[path] = state

    def upload_quietly(self) -> None:
        """`upload` that logs a failure instead of raising it."""
        try:
            self.upload()
        except OSError as error:
            logger.warning("TensorBoard's files could not be copied: %s", error)
