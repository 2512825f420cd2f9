"""Lists and reads single files of an experiment's context."""

from __future__ import annotations

import base64
import datetime as dt
import io
import mimetypes
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from trainmaster.master.services.clock import from_epoch
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import NotFound, TooLarge
from trainmaster.master.services.files.archives import ContextArchives

LARGEST = 16 * 2**20  # bytes of a file that is shown


@dataclass
class FileNode:
    path: str
    folder: bool
    size: int
    modified: dt.datetime
    media_type: str = ""
    children: list[FileNode] = field(default_factory=list)


class ContextFiles(BoundService):
    """Single files of an experiment's context."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._context_archives = ContextArchives(master)

    def tree(self, experiment_id: int) -> list[FileNode]:
        """Return the tree of files and folders. Raises NotFound."""
        top: list[FileNode] = []
        folders: dict[str, FileNode] = {}

        def place(node: FileNode) -> None:
            above = node.path.rpartition("/")[0]
            if not above:
                top.append(node)
                return
            if above not in folders:
                folders[above] = FileNode(above, True, 0, node.modified)
                place(folders[above])
            folders[above].children.append(node)

        with self._open(experiment_id) as tar:
            for member in sorted(tar, key=lambda member: member.name):
                modified = from_epoch(min(max(member.mtime, 0), 2**37))
                if member.isdir():
                    if member.name not in folders:
                        folders[member.name] = FileNode(member.name, True, 0, modified)
                        place(folders[member.name])
                elif member.isreg():
                    kind = mimetypes.guess_type(member.name)[0] or "text/plain"
                    place(FileNode(member.name, False, member.size, modified, kind))
        return top

    def content(self, experiment_id: int, path: str) -> str:
        """Return a file in base64. Raises NotFound, TooLarge."""
        with self._open(experiment_id) as tar:
            try:
                member = tar.getmember(path.strip("/"))
            except KeyError:
                raise NotFound(f"Experiment {experiment_id} has no file {path!r}.") from None
            if not member.isreg():
                raise NotFound(f"{path!r} of experiment {experiment_id} is a folder, not a file.")
            if member.size > LARGEST:
                raise TooLarge(f"{path} has {member.size} bytes; download the whole folder instead.")
            file = tar.extractfile(member)
            assert file is not None
            return base64.b64encode(file.read()).decode()

    @contextmanager
    def _open(self, experiment_id: int) -> Iterator[tarfile.TarFile]:
        archive = self._context_archives.whole(experiment_id)
        if not archive:
            with io.BytesIO() as nothing:
                tarfile.open(fileobj=nothing, mode="w").close()
                archive = nothing.getvalue()
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as tar:
            yield tar
