"""Checkpoint storage: one folder for each checkpoint, named by its uuid, below a root that all nodes share.

<root>/<uuid>/...             the user's files
<root>/<uuid>/metadata.json   the checkpoint's metadata
<root>/<cluster id>/tensorboard/experiment/<E>/trial/<T>/...
"""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from trainmaster.core.errors import CheckpointError, UnusableStorage
from trainmaster.core.file_tree import copy_files, inner_links, kept_links, list_files, make_durable

METADATA = "metadata.json"
_IN_CONTAINER = Path("/determined_shared_fs")  # where Determined's containers see a shared_fs storage
_FOR_GOOD = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)  # faults that stay until somebody mends them
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Storage:
    """The checkpoints below one folder that all ranks see."""

    in_store = False  # whether each node has a folder of its own, from which files are sent to a store

    def __init__(self, root: Path, config: Mapping[str, Any]) -> None:
        self.root = root
        self.config = dict(config)  # for the master, which finds the files by it

    @property
    def place(self) -> str:
        """How messages call the storage."""
        return str(self.root)

    def folder(self, storage_id: str) -> Path:
        """Return the folder of a checkpoint. Raises CheckpointError for an id that is no plain name."""
        if not _NAME.fullmatch(storage_id):
            raise CheckpointError("%r cannot be the id of a checkpoint" % (storage_id,))
        return self.root / storage_id

    def existing(self, storage_id: str) -> Path:
        """Return the folder of a checkpoint. Raises CheckpointError when it does not exist."""
        folder = self.folder(storage_id)
        if not folder.is_dir():
            raise CheckpointError("there is no checkpoint %s in %s" % (storage_id, self.root))
        return folder

    def create(self, storage_id: str) -> Path:
        """Make the folder of a checkpoint; several ranks may do so at once. Raises CheckpointError."""
        folder = self.folder(storage_id)
        try:
            # Its owner's alone, whatever the umask of the job.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            kind = UnusableStorage if error.errno in _FOR_GOOD else CheckpointError
            raise kind("%s cannot be made: %s" % (folder, error.strerror or error)) from error
        return folder

    def read_metadata(self, storage_id: str) -> Optional[Dict[str, Any]]:
        """Return the metadata that is stored with the files; None without any."""
        return self.metadata_in(self.folder(storage_id))

    def keep(self, storage_id: str, source: Path, names: List[str], links: Mapping[str, str]) -> None:
        """Store entries of a folder as those of a checkpoint; for good when this returns. Raises CheckpointError."""
        folder = self.create(storage_id)
        if source != folder:
            copy_files(source, folder, names, links)
            names = [name for name in names if name.endswith("/")]
        make_durable(folder, names)

    def conclude(self, storage_id: str, metadata: Mapping[str, Any]) -> int:
        """Store the metadata of a checkpoint whose files are there. Returns the size of its file. Raises
        CheckpointError."""
        folder = self.folder(storage_id)
        size = self.write_file(folder, metadata)
        make_durable(folder, [])
        make_durable(self.root, [])
        return size

    def clear(self, storage_id: str) -> None:
        """Remove what only the writing of a checkpoint needed."""

    def remove(self, storage_id: str) -> None:
        """Remove all files of a checkpoint, as far as that is possible."""
        import shutil  # few trainings delete checkpoints

        shutil.rmtree(str(self.folder(storage_id)), ignore_errors=True)

    def check(self, storage_id: str) -> None:
        """Check that a checkpoint is there. Raises CheckpointError."""
        self.existing(storage_id)

    def discard(self, storage_id: str) -> None:
        """Remove the files of a checkpoint that the master knows as deleted."""
        self.remove(storage_id)

    def fetch(self, storage_id: str, target: Path, wanted: Optional[Callable[[str], bool]] = None) -> None:
        """Copy a checkpoint's files into a folder: those of which `wanted` returns True. Raises CheckpointError."""
        source = self.existing(storage_id)
        names = selected(list_files(source), wanted)
        copy_files(source, target, names, kept_links(inner_links(source), names, wanted is None))

    @staticmethod
    def metadata_in(folder: Path) -> Optional[Dict[str, Any]]:
        """Return the metadata in a folder; None without any."""
        try:
            data = json.loads((folder / METADATA).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else None

    @staticmethod
    def write_file(folder: Path, metadata: Mapping[str, Any]) -> int:
        """Write the metadata into a folder, durably. Returns the file's size."""
        with open(str(folder / METADATA), "w", encoding="utf-8") as file:
            json.dump(metadata, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


def selected(sizes: Dict[str, int], selector: Optional[Callable[[str], bool]]) -> Dict[str, int]:
    """Return what the selector wants, and the folders that lead there. The metadata file is never the user's."""
    wanted = {name: size for name, size in sizes.items() if name != METADATA}
    if selector is None:
        return wanted
    chosen = {name: size for name, size in wanted.items() if selector(name)}
    for name in list(chosen):
        for parent in Path(name).parents:
            if parent != Path("."):
                chosen[parent.as_posix() + "/"] = 0
    return chosen


def open_storage(
    config: Union[str, Mapping[str, Any], None], store: Optional[Callable[[Mapping[str, Any]], Storage]] = None
) -> Storage:
    """Return the storage that a path, or an experiment's `checkpoint_storage` section, describes.

    None means Determined's place for runs outside of a cluster, `~/.local/share/determined`. `store` opens an object
    store; None where there is no job whose master could sign. Raises UnusableStorage for kinds of storage that this
    core cannot write.
    """
    if config is None:
        config = str(Path.home() / ".local" / "share" / "determined")
    if isinstance(config, str):
        if re.match(r"[a-z0-9]+://", config):
            raise UnusableStorage("checkpoint storage %s: only folders can be given as a string here" % config)
        return Storage(Path(config).expanduser(), {"type": "directory", "container_path": config})
    kind = config.get("type")
    if kind == "directory":
        return Storage(Path(_required(config, "container_path")), config)
    if kind == "shared_fs":
        return Storage(_shared_root(config), config)
    if store is not None and isinstance(kind, str):
        return store(config)
    raise UnusableStorage(
        "checkpoint storage of type %r cannot be used outside of a job: shared_fs and directory can" % (kind,)
    )


def _shared_root(config: Mapping[str, Any]) -> Path:
    host_path = Path(_required(config, "host_path"))
    # In our containers the host's path is bound under its own name; images made for Determined expect the other.
    base = _IN_CONTAINER if not host_path.is_dir() and _IN_CONTAINER.is_dir() else host_path
    inner = config.get("storage_path")
    if not inner:
        return base
    path = Path(inner)
    if path.is_absolute():
        try:
            path = path.relative_to(host_path)
        except ValueError:
            raise UnusableStorage("checkpoint_storage: storage_path %s is not below host_path" % inner) from None
    if ".." in path.parts:
        raise UnusableStorage("checkpoint_storage: storage_path %s leads out of host_path" % inner)
    return base / path


def _required(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise UnusableStorage("checkpoint_storage: %s is missing" % key)
    return value
