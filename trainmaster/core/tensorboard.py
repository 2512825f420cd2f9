"""Copies a trial's TensorBoard event files from a local folder to the checkpoint storage."""

from __future__ import annotations

import enum
import errno
import logging
import os
import stat
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple

logger = logging.getLogger("trainmaster.core")


class TensorboardMode(enum.Enum):
    """When event files are copied."""

    AUTO = "AUTO"  # core, after each checkpoint and at the end
    MANUAL = "MANUAL"  # the user, with `upload_tensorboard_files`


def everything(_: Path) -> bool:
    """Select every file."""
    return True


def unchanged(path: Path, _: int) -> Path:
    """Keep a name."""
    return path


class TensorboardFiles:
    """One rank's folder of event files, and the folder they are copied to."""

    def __init__(self, local: Path, target: Optional[Path], rank: int, shared: Sequence[Path] = ()) -> None:
        """`target` is None where nothing is to be copied. `shared`: the folders above it that trainings of all accounts
        use, the storage first, each in the one before."""
        self.local = local
        self._target = target
        self._rank = rank
        self._shared = shared
        self.unkept = ""  # why files that are written here go nowhere; empty where nobody expects them to
        self._copied: Dict[Path, Tuple[int, int]] = {}  # what is there already: size, time of change (ns)

    def upload(
        self,
        selector: Callable[[Path], bool] = everything,
        mangler: Callable[[Path, int], Path] = unchanged,
    ) -> None:
        """Copy new and changed files. `selector(path)` chooses, `mangler(relative path, rank)` renames."""
        if self._target is None or not self.local.is_dir():
            self._say_lost()
            return
        import shutil  # most trainings write no such files

        self._make_target(self._target)

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

    def _make_target(self, target: Path) -> None:
        """Make the folder. Raises OSError."""
        own = target
        if self._shared:
            own = self._shared[-1] / target.relative_to(self._shared[-1]).parts[0]
            if self._make_shared():
                own.mkdir(mode=0o700, exist_ok=True)
                # Names are numbers that count up: another account may have made a folder of this one.
                if own.stat().st_uid != os.geteuid():
                    raise PermissionError(errno.EPERM, "it belongs to another account", str(own))
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.mkdir(parents=True, exist_ok=True)

    def _make_shared(self) -> bool:
        """Make the folders that all accounts use, sticky like /tmp where the storage is. Returns whether it is."""
        root, *below = self._shared
        root.mkdir(parents=True, exist_ok=True)
        open_to_all = stat.S_ISVTX | stat.S_IWOTH
        sticky = root.stat().st_mode & open_to_all == open_to_all
        for folder in below:
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            if sticky:
                folder.chmod(0o1777)
        return sticky

    def _say_lost(self) -> None:
        """Warn once where files are written that no storage takes."""
        if self.unkept and self.local.is_dir() and any(self.local.iterdir()):
            logger.warning("TensorBoard's files are not kept: %s. Metrics that are reported are.", self.unkept)
            self.unkept = ""

    def upload_quietly(self) -> None:
        """`upload` that logs a failure instead of raising it."""
        try:
            self.upload()
        except OSError as error:
            logger.warning("TensorBoard's files could not be copied: %s", error)
