"""Checkpoints and the models that they are registered under, with their methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.client import checkpoint_files, models
from trainmaster.client.checkpoint_files import Way
from trainmaster.client.errors import ClientError

if TYPE_CHECKING:
    from trainmaster.client.experiment import Trial
    from trainmaster.client.master import Master
    from trainmaster.client.view_records import VersionOrigin


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
        return checkpoint_files.folder(self)

    def download(self, target: str | Path | None = None, way: Way = Way.AUTO) -> Path:
        """Copy its files to a new folder, whole or not at all. They come from the storage where this machine has its
        folder mounted or reaches its object store, else through the master.

        Args:
            target: A folder that does not exist or is empty. Default: checkpoints/UUID.
            way: Restricts where the files are read from.

        Returns:
            The folder.

        Raises:
            ClientError: The target exists, the files are gone or damaged, or they cannot be copied.
        """
        where = Path("checkpoints") / self.uuid if target is None else Path(target)
        checkpoint_files.fetch(self, where, way, self.master.checkpoint_files(self.uuid))
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

    def pin(self, pinned: bool = True) -> None:
        """Keep its files whatever a policy or a request says, or no longer. As `Experiments.pin_checkpoints`."""
        self.master.edits.pin_checkpoints([self.uuid], pinned)

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

    def version(self, number: int | str | None = None) -> ModelVersion:
        """Get one version.

        Args:
            number: Number or alias of the version; None for the newest.

        Returns:
            The version.

        Raises:
            ClientError: The model has no version, or no such alias.
            NoSuchThing: There is no version of this number.
        """
        if isinstance(number, str):
            number = self.master.registry.number(str(self.id), number)
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

    def aliases(self) -> list[str]:
        """List the names that lead to this version. As `ModelRegistry.aliases`."""
        known = self.master.registry.aliases(self.model_name)
        return [alias for alias, number in known.items() if number == self.version]

    def lineage(self) -> VersionOrigin:
        """Get where it comes from. As `Views.lineage`."""
        return self.master.views.lineage(self.model_name, self.version)

    def export(self, target: str | Path, way: Way = Way.AUTO) -> Path:
        """Copy its files, code, configuration and origin to a new folder with a README, whole or not at all. The folder
        needs no master.

        Args:
            target: A folder that does not exist.
            way: Restricts where the checkpoint's files are read from.

        Returns:
            The folder.

        Raises:
            ClientError: The target exists, or something cannot be read or written.
        """
        from trainmaster.client.model_export import ExportSources, export

        checkpoint = self.checkpoint()
        sources = ExportSources(lambda folder: checkpoint.download(folder, way), self.master.edits.files)
        export(Path(target), self, self.aliases(), self.lineage(), checkpoint.resources, sources)
        return Path(target)

    def delete(self) -> None:
        """Delete this version; the checkpoint stays. As `ModelRegistry.delete_version`."""
        self.master.registry.delete_version(self.model_name, self.version)


def _version(master: Master, raw: Any) -> ModelVersion:
    return ModelVersion.parse(raw, master=master)
