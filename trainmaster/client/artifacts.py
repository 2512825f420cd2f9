"""Checkpoints and the models that they are registered under, with their methods."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from trainmaster.client import models
from trainmaster.client.errors import ClientError
from trainmaster.client.untrusted import checked_id

if TYPE_CHECKING:
    from trainmaster.client.experiment import Trial
    from trainmaster.client.master import Master


class Way(enum.Enum):
    """How the files of a checkpoint are downloaded.

    DIRECT copies from the storage's folder, which this machine must have mounted; MASTER reads through the master; AUTO
    takes the first that works.
    """

    AUTO = "auto"
    DIRECT = "direct"
    MASTER = "master"


@dataclass(frozen=True)
class Checkpoint(models.Checkpoint):
    """A checkpoint, as it was when it was read. Every method may raise MasterUnreachable and APIError."""

    master: Master = field(repr=False, compare=False)

    def reload(self) -> Checkpoint:
        """Get this checkpoint again. As `Master.checkpoint`."""
        return self.master.checkpoint(self.uuid)

    def trial(self) -> Trial:
        """Get the trial that wrote it.

        Returns:
            The trial as it is now.

        Raises:
            ClientError: It belongs to no trial.
        """
        if self.trial_id is None:
            raise ClientError(f"Checkpoint {self.uuid} belongs to no trial.")
        return self.master.trial(self.trial_id)

    def folder(self) -> Path:
        """Get the folder of its files; the path is meant for machines that mount the storage.

        Returns:
            The path.

        Raises:
            ClientError: Its kind of storage has no folder.
        """
        return folder(self)

    def download(self, target: str | Path | None = None, way: Way = Way.AUTO) -> Path:
        """Copy its files to a new folder, whole or not at all. They come from the storage's folder where this machine
        has it mounted, else through the master.

        Args:
            target: A folder that does not exist or is empty. Default: checkpoints/UUID.
            way: Restricts where the files are read from.

        Returns:
            The folder.

        Raises:
            ClientError: The target exists, the files are gone or damaged, or they cannot be copied.
        """
        where = Path("checkpoints") / self.uuid if target is None else Path(target)
        _fetch(self, where, way)
        return where

    def edit_metadata(self, **values: Any) -> Checkpoint:
        """Change some of its metadata.

        Args:
            values: Keys with their new values; None removes a key.

        Returns:
            The checkpoint after the change.

        Raises:
            NotAllowed: The caller may not change it.
        """
        left = {**self.reload().metadata, **values}
        self.master.edits.set_checkpoint_metadata(self.uuid, {k: v for k, v in left.items() if v is not None})
        return self.reload()

    def delete(self) -> None:
        """Delete its files. The master continues after the call has returned. As `Experiments.delete_checkpoints`."""
        self.master.edits.delete_checkpoints([self.uuid])


@dataclass(frozen=True)
class Model(models.Model):
    """A model of the registry, as it was when it was read. Every method may raise MasterUnreachable and APIError."""

    master: Master = field(repr=False, compare=False)

    def reload(self) -> Model:
        """Get this model again. As `Master.model`."""
        return self.master.model(str(self.id))

    def register(self, checkpoint: Checkpoint | str, **fields: Any) -> ModelVersion:
        """Register a checkpoint as the model's next version.

        Args:
            checkpoint: The checkpoint or its id.
            fields: name, comment, notes, labels, metadata.

        Returns:
            The version.

        Raises:
            NoSuchThing: There is no such checkpoint.
            NotAllowed: The caller may not change the model.
        """
        uuid = checkpoint if isinstance(checkpoint, str) else checkpoint.uuid
        return _version(self.master, self.master.registry.register(str(self.id), uuid, **fields))

    def versions(self) -> list[ModelVersion]:
        """List its versions.

        Returns:
            The versions, newest first.
        """
        return [_version(self.master, raw) for raw in self.master.registry.versions(str(self.id))]

    def version(self, number: int | None = None) -> ModelVersion:
        """Get one version.

        Args:
            number: Number of the version; None for the newest.

        Returns:
            The version.

        Raises:
            ClientError: The model has no version.
            NoSuchThing: There is no version of this number.
        """
        if number is not None:
            return _version(self.master, self.master.registry.version(str(self.id), number))
        versions = self.versions()
        if not versions:
            raise ClientError(f"The model {self.name!r} has no version yet.")
        return versions[0]

    def edit(self, **fields: Any) -> Model:
        """Change how it is described.

        Args:
            fields: name, description, notes, labels, metadata; what is not named stays.

        Returns:
            The model after the change.

        Raises:
            NotAllowed: The caller may not change it.
        """
        self.master.registry.edit_model(str(self.id), **fields)
        return self.reload()

    def move(self, workspace_id: int) -> None:
        """Move it to another workspace. As `ModelRegistry.move_model`."""
        self.master.registry.move_model(str(self.id), workspace_id)

    def archive(self) -> None:
        """Archive it: it cannot be changed until `unarchive`. As `ModelRegistry.archive_model`."""
        self.master.registry.archive_model(str(self.id))

    def unarchive(self) -> None:
        """Undo `archive`. As `ModelRegistry.unarchive_model`."""
        self.master.registry.unarchive_model(str(self.id))

    def delete(self) -> None:
        """Delete it with its versions; the checkpoints stay. As `ModelRegistry.delete_model`."""
        self.master.registry.delete_model(str(self.id))


@dataclass(frozen=True)
class ModelVersion(models.ModelVersion):
    """A version of a model, as it was when it was read. Every method may raise MasterUnreachable and APIError."""

    master: Master = field(repr=False, compare=False)

    def checkpoint(self) -> Checkpoint:
        """Get the checkpoint that is registered as this version. As `Master.checkpoint`."""
        return self.master.checkpoint(self.checkpoint_uuid)

    def edit(self, **fields: Any) -> ModelVersion:
        """Change how it is described.

        Args:
            fields: name, comment, notes, labels, metadata; what is not named stays.

        Returns:
            The version after the change.

        Raises:
            NotAllowed: The caller may not change it.
        """
        return _version(self.master, self.master.registry.edit_version(self.model_name, self.version, **fields))

    def delete(self) -> None:
        """Delete this version; the checkpoint stays. As `ModelRegistry.delete_version`."""
        self.master.registry.delete_version(self.model_name, self.version)


def _version(master: Master, raw: Any) -> ModelVersion:
    return ModelVersion.parse(raw, master=master)


# -- files --------------------------------------------------------------------------------------------------------


def folder(checkpoint: models.Checkpoint) -> Path:
    """Where the files of a checkpoint are, on machines that mount the storage. Raises ClientError for storage without a
    folder."""
    storage: Mapping[str, Any] = checkpoint.storage
    if storage.get("type") == "shared_fs":
        root = Path(storage["host_path"])
        return (root / storage["storage_path"] if storage.get("storage_path") else root) / checkpoint.uuid
    if storage.get("type") == "directory":
        return Path(storage["container_path"]) / checkpoint.uuid
    raise ClientError(
        f"Checkpoint {checkpoint.uuid} is in {storage.get('type')!r} storage, which this client cannot read."
    )


def _fetch(checkpoint: Checkpoint, target: Path, way: Way) -> None:
    """Copy to a folder beside the target, which is renamed when it is complete. Raises ClientError."""
    import shutil

    checked_id(checkpoint.uuid, "checkpoint")
    if checkpoint.state == "DELETED":
        raise ClientError(f"The files of checkpoint {checkpoint.uuid} were deleted.")
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ClientError(f"{target} already exists; name another folder.")
    source = None if way is Way.MASTER else folder(checkpoint)
    if source is not None and not source.is_dir():
        if way is Way.DIRECT:
            raise ClientError(
                f"The files of checkpoint {checkpoint.uuid} are not in {source} on this machine. Run this where that "
                "folder is mounted, for example on a login node, or download them through the master."
            )
        source = None
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        if source is not None:
            _copy(source, partial)
        else:
            _unpack(checkpoint, partial)
        _check(checkpoint, partial)
        if target.exists():
            target.rmdir()
        partial.rename(target)
    except OSError as error:
        raise ClientError(f"Checkpoint {checkpoint.uuid} could not be copied to {target}: {error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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


def _unpack(checkpoint: Checkpoint, target: Path) -> None:
    """Unpack the master's tar stream. Raises ClientError for a damaged archive, and for entries that would lead out of
    the folder."""
    import shutil
    import tarfile

    target.mkdir()
    links: dict[Path, str] = {}  # made when all files are there, so that none is written through them
    with checkpoint.master.checkpoint_archive(checkpoint.uuid) as stream:
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
