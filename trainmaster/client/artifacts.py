"""Checkpoints, and the models that they are registered under, with their verbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.client import models
from trainmaster.client.errors import ClientError

if TYPE_CHECKING:
    from trainmaster.client.experiment import Trial
    from trainmaster.client.master import Master


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

    def download(self, target: str | Path | None = None) -> Path:
        """Copy its files to a folder that is not there yet (default: checkpoints/UUID), and return that. Raises
        ClientError."""
        where = Path("checkpoints") / self.uuid if target is None else Path(target)
        copy_to(self, where)
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


def copy_to(checkpoint: models.Checkpoint, target: Path) -> None:
    """Copy a checkpoint's files to a folder that is not there yet. Raises ClientError."""
    if checkpoint.state == "DELETED":
        raise ClientError(f"The files of checkpoint {checkpoint.uuid} were deleted.")
    source = folder(checkpoint)
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ClientError(f"{target} is there already; name another folder.")
    if not source.is_dir():
        raise ClientError(
            f"The files of checkpoint {checkpoint.uuid} are not to be found in {source} on this machine. Run this "
            "where that folder is mounted, for example on a login node."
        )
    try:
        _copy(checkpoint, source, target)
    except OSError as error:
        raise ClientError(f"Checkpoint {checkpoint.uuid} could not be copied to {target}: {error}.") from None


def _copy(checkpoint: models.Checkpoint, source: Path, target: Path) -> None:
    """Copy to a folder beside the target and rename it when it is whole. Raises OSError and ClientError."""
    import shutil

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        try:
            shutil.copytree(source, partial)
        except shutil.Error as errors:  # a list of (source, target, why)
            raise OSError("; ".join(f"{name}: {why}" for name, _, why in errors.args[0][:3])) from None
        for path, size in checkpoint.resources.items():
            copied = partial / path
            if not copied.exists() or (copied.is_file() and copied.stat().st_size != size):
                raise ClientError(f"Checkpoint {checkpoint.uuid} is damaged: {path} is missing or not of {size} bytes.")
        if target.exists():
            target.rmdir()
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
