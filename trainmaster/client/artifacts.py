"""Checkpoints, and the models that they are registered under, with their verbs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from trainmaster.client import models
from trainmaster.client.errors import ClientError

if TYPE_CHECKING:
    from trainmaster.client.experiment import Trial
    from trainmaster.client.master import Master


class Way(enum.Enum):
    """How files come here. DIRECT: from the storage's folder, which this machine must see."""

    AUTO = "auto"
    DIRECT = "direct"
    MASTER = "master"


@dataclass(frozen=True)
class Checkpoint(models.Checkpoint):
    master: Master = field(repr=False, compare=False)

    def reload(self) -> Checkpoint:
        return self.master.checkpoint(self.uuid)

    def trial(self) -> Trial:
        """Raises ClientError for a checkpoint of no trial."""
        if self.trial_id is None:
            raise ClientError(f"Checkpoint {self.uuid} belongs to no trial.")
        return self.master.trial(self.trial_id)

    def folder(self) -> Path:
        """Where its files lie, on a machine that sees the storage. Raises ClientError."""
        return folder(self)

    def download(self, target: str | Path | None = None, way: Way = Way.AUTO) -> Path:
        """Copy its files to a folder that is not there yet (default: checkpoints/UUID), and return that. They come from
        the storage's folder where this machine sees it, else through the master. Raises ClientError."""
        where = Path("checkpoints") / self.uuid if target is None else Path(target)
        _fetch(self, where, way)
        return where

    def edit_metadata(self, **values: Any) -> Checkpoint:
        """Set these of its metadata; what is None is taken away."""
        left = {**self.reload().metadata, **values}
        self.master.edits.set_checkpoint_metadata(self.uuid, {k: v for k, v in left.items() if v is not None})
        return self.reload()

    def delete(self) -> None:
        """Its files. The master goes on with it afterwards."""
        self.master.edits.delete_checkpoints([self.uuid])


@dataclass(frozen=True)
class Model(models.Model):
    master: Master = field(repr=False, compare=False)

    def reload(self) -> Model:
        return self.master.model(str(self.id))

    def register(self, checkpoint: Checkpoint | str, **fields: Any) -> ModelVersion:
        """A checkpoint as the model's next version. `fields`: name, comment, notes, labels, metadata."""
        uuid = checkpoint if isinstance(checkpoint, str) else checkpoint.uuid
        return _version(self.master, self.master.registry.register(str(self.id), uuid, **fields))

    def versions(self) -> list[ModelVersion]:
        """The newest first."""
        return [_version(self.master, raw) for raw in self.master.registry.versions(str(self.id))]

    def version(self, number: int | None = None) -> ModelVersion:
        """That one, or the newest. Raises ClientError when there is none."""
        if number is not None:
            return _version(self.master, self.master.registry.version(str(self.id), number))
        found = self.versions()
        if not found:
            raise ClientError(f"The model {self.name!r} has no version yet.")
        return found[0]

    def edit(self, **fields: Any) -> Model:
        """`fields`: name, description, notes, labels, metadata."""
        self.master.registry.edit_model(str(self.id), **fields)
        return self.reload()

    def move(self, workspace_id: int) -> None:
        self.master.registry.move_model(str(self.id), workspace_id)

    def archive(self) -> None:
        self.master.registry.steer_model(str(self.id), "archive")

    def unarchive(self) -> None:
        self.master.registry.steer_model(str(self.id), "unarchive")

    def delete(self) -> None:
        self.master.registry.delete_model(str(self.id))


@dataclass(frozen=True)
class ModelVersion(models.ModelVersion):
    master: Master = field(repr=False, compare=False)

    def checkpoint(self) -> Checkpoint:
        return self.master.checkpoint(self.checkpoint_uuid)

    def edit(self, **fields: Any) -> ModelVersion:
        """`fields`: name, comment, notes, labels, metadata."""
        return _version(self.master, self.master.registry.edit_version(self.model_name, self.version, **fields))

    def delete(self) -> None:
        """The checkpoint stays."""
        self.master.registry.delete_version(self.model_name, self.version)


def _version(master: Master, raw: Any) -> ModelVersion:
    return ModelVersion.parse(raw, master=master)


# -- files --------------------------------------------------------------------------------------------------------


def folder(checkpoint: models.Checkpoint) -> Path:
    """Where its files lie, on a machine that sees the storage. Raises ClientError."""
    storage: Mapping[str, Any] = checkpoint.storage
    if storage.get("type") == "shared_fs":
        root = Path(storage["host_path"])
        return (root / storage["storage_path"] if storage.get("storage_path") else root) / checkpoint.uuid
    if storage.get("type") == "directory":
        return Path(storage["container_path"]) / checkpoint.uuid
    raise ClientError(
        f"Checkpoint {checkpoint.uuid} lies in {storage.get('type')!r} storage, which this client cannot read."
    )


def _fetch(checkpoint: Checkpoint, target: Path, way: Way) -> None:
    """To a folder beside the target, which is renamed when it is whole. Raises ClientError."""
    import shutil

    if checkpoint.state == "DELETED":
        raise ClientError(f"The files of checkpoint {checkpoint.uuid} were deleted.")
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ClientError(f"{target} is there already; name another folder.")
    source = None if way is Way.MASTER else folder(checkpoint)
    if source is not None and not source.is_dir():
        if way is Way.DIRECT:
            raise ClientError(
                f"The files of checkpoint {checkpoint.uuid} are not to be found in {source} on this machine. Run this "
                "where that folder is mounted, for example on a login node, or let the master send them."
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
        shutil.copytree(source, target)
    except shutil.Error as errors:  # a list of (source, target, why)
        raise OSError("; ".join(f"{name}: {why}" for name, _, why in errors.args[0][:3])) from None


def _unpack(checkpoint: Checkpoint, target: Path) -> None:
    """What the master sends. Raises ClientError for an archive that is none, and for entries that lead elsewhere."""
    import shutil
    import tarfile

    target.mkdir()
    with checkpoint.master.checkpoint_archive(checkpoint.uuid) as stream:
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
                for member in archive:
                    inside = PurePosixPath(member.name)
                    if inside.is_absolute() or ".." in inside.parts or not (member.isfile() or member.isdir()):
                        raise ClientError(f"The master sent {member.name!r}, which is no file of a checkpoint.")
                    place = target / inside
                    if member.isdir():
                        place.mkdir(parents=True, exist_ok=True)
                        continue
                    place.parent.mkdir(parents=True, exist_ok=True)
                    content = archive.extractfile(member)
                    if content is not None:
                        with content, place.open("wb") as file:
                            shutil.copyfileobj(content, file, 2**20)
        except tarfile.TarError as error:
            raise ClientError(f"What the master sent of checkpoint {checkpoint.uuid} is damaged: {error}.") from None


def _check(checkpoint: models.Checkpoint, copied: Path) -> None:
    """Raises ClientError for a file that is missing or of another size."""
    for path, size in checkpoint.resources.items():
        place = copied / path
        if not place.exists() or (place.is_file() and place.stat().st_size != size):
            raise ClientError(f"Checkpoint {checkpoint.uuid} is damaged: {path} is missing or not of {size} bytes.")
