"""Copies the files of a checkpoint to this machine: from its storage, or through the master."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from trainmaster.client import models
from trainmaster.client.errors import ClientError
from trainmaster.client.transport import Content
from trainmaster.client.untrusted import checked_id

_FOLDERS = ("shared_fs", "directory")


class Way(enum.Enum):
    """How the files of a checkpoint are downloaded.

    DIRECT reads from the storage: a folder that this machine must have mounted, or an object store that it must reach;
    MASTER reads through the master; AUTO takes the first that works.
    """

    AUTO = "auto"
    DIRECT = "direct"
    MASTER = "master"


@dataclass(frozen=True)
class FileSource:
    """How the master gives out the files of one checkpoint."""

    archive: Callable[[], AbstractContextManager[Content]]  # a tar stream
    signed: Callable[[Mapping[str, str]], Mapping[str, Any]]  # a list with addresses at their store


def folder(checkpoint: models.Checkpoint) -> Path:
    """Where the files of a checkpoint are, on machines that mount the storage. Raises ClientError for storage without a
    folder."""
    storage: Mapping[str, Any] = checkpoint.storage
    if storage.get("type") == "shared_fs":
        root = Path(storage["host_path"])
        return (root / storage["storage_path"] if storage.get("storage_path") else root) / checkpoint.uuid
    if storage.get("type") == "directory":
        return Path(storage["container_path"]) / checkpoint.uuid
    raise ClientError(f"Checkpoint {checkpoint.uuid} is in {storage.get('type')!r} storage, which has no folder.")


def fetch(checkpoint: models.Checkpoint, target: Path, way: Way, files: FileSource) -> None:
    """Copy to a folder beside the target, which is renamed when it is complete. Raises ClientError."""
    import shutil

    checked_id(checkpoint.uuid, "checkpoint")
    if checkpoint.state == "DELETED":
        raise ClientError(f"The files of checkpoint {checkpoint.uuid} were deleted.")
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ClientError(f"{target} already exists; name another folder.")
    read = _reader(checkpoint, way, files)
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        read(partial)
        _check(checkpoint, partial)
        if target.exists():
            target.rmdir()
        partial.rename(target)
    except OSError as error:
        raise ClientError(f"Checkpoint {checkpoint.uuid} could not be copied to {target}: {error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _reader(checkpoint: models.Checkpoint, way: Way, files: FileSource) -> Callable[[Path], None]:
    """Return what writes the files into a new folder. Raises ClientError."""
    if way is Way.MASTER:
        return lambda target: _unpack(checkpoint, target, files)
    if checkpoint.storage.get("type") not in _FOLDERS:
        return lambda target: _from_store(checkpoint, target, way, files)
    source = folder(checkpoint)
    if source.is_dir():
        return lambda target: _copy(source, target)
    if way is Way.DIRECT:
        raise ClientError(
            f"The files of checkpoint {checkpoint.uuid} are not in {source} on this machine. Run this where that "
            "folder is mounted, for example on a login node, or download them through the master."
        )
    return lambda target: _unpack(checkpoint, target, files)


def _from_store(checkpoint: models.Checkpoint, target: Path, way: Way, files: FileSource) -> None:
    """Download by addresses that the master signs, or through the master where the store cannot be reached. Raises
    ClientError, OSError."""
    from trainmaster.client.signed_downloads import Unreached, download

    target.mkdir()
    try:
        download(files.signed, target)
    except Unreached as error:
        if way is Way.DIRECT:
            raise ClientError(
                f"The files of checkpoint {checkpoint.uuid} cannot be read from their store: {error}. Download them "
                "through the master."
            ) from None
        target.rmdir()
        _unpack(checkpoint, target, files)


def _copy(source: Path, target: Path) -> None:
    import shutil

    try:
        shutil.copytree(source, target, symlinks=True)
        links = [path for path in target.rglob("*") if path.is_symlink()]
        for link in links:
            original = source / link.relative_to(target)
            if _leads_inside(link, target):
                continue
            link.unlink()  # its place is taken by what it leads to
            if original.is_dir():
                shutil.copytree(original, link)
            else:
                shutil.copy2(original, link)
    except shutil.Error as errors:  # a list of (source, target, why)
        raise OSError("; ".join(f"{name}: {why}" for name, _, why in errors.args[0][:3])) from None


def _leads_inside(link: Path, folder: Path) -> bool:
    """Whether a link leads to a place in the folder that it is in, by a path that stays right where this moves to."""
    real = os.path.realpath(link)
    return not os.path.isabs(os.readlink(link)) and Path(real).is_relative_to(folder.resolve())


def _unpack(checkpoint: models.Checkpoint, target: Path, files: FileSource) -> None:
    """Unpack the master's tar stream. Raises ClientError for a damaged archive, and for entries that would lead out of
    the folder."""
    import shutil
    import tarfile

    target.mkdir()
    links: dict[Path, str] = {}  # made when all files are there, so that none is written through them
    with files.archive() as stream:
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
                for member in archive:
                    inside = PurePosixPath(member.name)
                    if (
                        inside.is_absolute()
                        or ".." in inside.parts
                        or not (member.isfile() or member.isdir() or member.issym())
                    ):
                        raise ClientError(f"The master sent {member.name!r}, which cannot be a file of a checkpoint.")
                    place = target / inside
                    if member.isdir():
                        place.mkdir(parents=True, exist_ok=True)
                        continue
                    place.parent.mkdir(parents=True, exist_ok=True)
                    if member.issym():
                        links[place] = member.linkname
                        continue
                    content = archive.extractfile(member)
                    if content is not None:
                        with content, place.open("wb") as file:
                            shutil.copyfileobj(content, file, 2**20)
        except tarfile.TarError as error:
            raise ClientError(f"The archive of checkpoint {checkpoint.uuid} arrived damaged: {error}.") from None
    for place, goal in links.items():
        place.symlink_to(goal)
    for place, goal in links.items():
        if not _leads_inside(place, target):
            name = place.relative_to(target)
            raise ClientError(f"The master sent the link {str(name)!r} to {goal!r}, which leads out of the checkpoint.")


def _check(checkpoint: models.Checkpoint, copied: Path) -> None:
    """Raise ClientError for a file that is missing or has another size than recorded."""
    for path, size in checkpoint.resources.items():
        place = copied / path
        if not os.path.lexists(place) or (place.is_file() and place.stat().st_size != size):
            raise ClientError(
                f"Checkpoint {checkpoint.uuid} is damaged: {path} is missing or does not have {size} bytes."
            )
