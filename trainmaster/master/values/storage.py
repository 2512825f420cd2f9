"""A stored checkpoint storage: of a configuration, of a workspace, or of a checkpoint."""

from __future__ import annotations

import os.path

from trainmaster.config.storage import KEEP_POLICY, Kept
from trainmaster.master.values.stored import Json, StoredJson, section_of


class StorageRef(StoredJson):
    """Where checkpoints are, and how many of them are kept."""

    @property
    def type(self) -> str:
        return str(self._stored.get("type") or "")

    @property
    def host_path(self) -> str:
        """Of a `shared_fs` storage: the folder that all nodes mount."""
        return str(self._stored.get("host_path") or "")

    @property
    def storage_path(self) -> str:
        return str(self._stored.get("storage_path") or "")

    @property
    def prefix(self) -> str:
        """Below which it keeps its checkpoints, in its bucket or folder."""
        return str(self._stored.get("prefix") or self.storage_path).strip("/")

    @property
    def in_store(self) -> bool:
        """Whether it is an object store."""
        return bool(self.type) and self.root is None and self.type not in ("shared_fs", "directory", "elsewhere")

    def text(self, key: str) -> str:
        return str(self._stored.get(key) or "")

    @property
    def kept(self) -> Kept:
        """How many checkpoints are kept."""
        return section_of(Kept, {key: value for key, value in self._stored.items() if key in KEEP_POLICY})

    @property
    def place(self) -> Json:
        """All that says where it is, without how many checkpoints are kept."""
        return {key: value for key, value in self._stored.items() if key not in KEEP_POLICY and value is not None}

    @property
    def root(self) -> str | None:
        """The folder that holds one folder for each checkpoint; None for storage that is not a file system."""
        if self.type == "shared_fs":
            parts = (self._stored.get("host_path"), self._stored.get("storage_path") or "")
        elif self.type == "directory":
            parts = (self._stored.get("container_path"), "")
        else:
            return None
        if not all(isinstance(part, str) and "\0" not in part for part in parts) or not str(parts[0]).startswith("/"):
            return None
        return os.path.normpath("/" + os.path.join(*map(str, parts)).lstrip("/"))
