"""Copies a trial's TensorBoard event files from a local folder to the checkpoint storage: to a folder, or to an object
store, where they are seen while the training runs."""

from __future__ import annotations

import enum
import errno
import logging
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Sequence, Tuple, Union

from trainmaster.core.errors import CheckpointError

if TYPE_CHECKING:
    from trainmaster.core.event_store import EventStore

INTERVAL = 20.0  # seconds between looks for what was written, for an object store

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

    def __init__(
        self,
        local: Path,
        target: Union[Path, EventStore, None],
        rank: int,
        shared: Sequence[Path] = (),
    ) -> None:
        """`target` is None where nothing is to be copied. `shared`: the folders above it that trainings of all accounts
        use, the storage first, each in the one before."""
        self.local = local
        self._target = target
        self._rank = rank
        self._shared = shared
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._told = ""  # the latest fault
        self._copied: Dict[Path, Tuple[int, int]] = {}  # what is there already: size, time of change (ns)

    def upload(
        self,
        selector: Callable[[Path], bool] = everything,
        mangler: Callable[[Path, int], Path] = unchanged,
    ) -> None:
        """Copy new and changed files. `selector(path)` chooses, `mangler(relative path, rank)` renames."""
        target = self._target
        if target is None or not self.local.is_dir():
            return
        if isinstance(target, Path):
            self._make_target(target)
        with self._lock:
            self._upload(target, selector, mangler)

    def _upload(
        self, target: Union[Path, EventStore], selector: Callable[[Path], bool], mangler: Callable[[Path, int], Path]
    ) -> None:
        for path in sorted(self.local.rglob("*")):
            if not path.is_file() or not selector(path):
                continue
            status = path.stat()
            state = (status.st_size, status.st_mtime_ns)
            if self._copied.get(path) == state:
                continue
            name = mangler(path.relative_to(self.local), self._rank)
            if isinstance(target, Path):
                import shutil  # most trainings write no such files

                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(path), str(target / name))
            else:
                target.put(path, name.as_posix())
            self._copied[path] = state

    def follow(self) -> None:
        """Copy what is written from time to time, until `end`."""
        threading.Thread(target=self._follow, name="tensorboard-files", daemon=True).start()

    def end(self) -> None:
        """Copy what is left."""
        self._ended.set()
        self.upload_quietly()

    def _follow(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.upload_quietly()

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

    def upload_quietly(self) -> None:
        """`upload` that logs a failure instead of raising it."""
        try:
            self.upload()
        except (OSError, CheckpointError) as error:
            if str(error) != self._told:  # it is tried again soon
                self._told = str(error)
                logger.warning("TensorBoard's files could not be copied: %s", error)
