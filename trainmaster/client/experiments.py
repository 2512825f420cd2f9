"""Changes to experiments, trials and checkpoints."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from trainmaster.client.resource import Json, Resource, word


class Experiments(Resource):
    """Calls that change what belongs to a user; `Master` has those that read.

    Arguments of several calls:
        experiment_id: Number of the experiment.
        uuids: Ids of the checkpoints.
    """

    def edit(self, experiment_id: int, **fields: Any) -> Json:
        """Change fields of an experiment.

        Args:
            fields: Named as in the API: name, description, notes, labels, resources, checkpointStorage.

        Returns:
            The experiment after the change, with the API's fields.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        return dict(self._patch(f"experiments/{experiment_id}", {"id": experiment_id, **fields})["experiment"])

    def add_label(self, experiment_id: int, label: str) -> list[str]:
        """Add a label to an experiment.

        Args:
            label: The label.

        Returns:
            All labels after the change.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        return list(self._put(f"experiments/{experiment_id}/labels/{word(label)}", {})["labels"])

    def remove_label(self, experiment_id: int, label: str) -> list[str]:
        """Remove a label from an experiment.

        Args:
            label: The label.

        Returns:
            All labels after the change.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        return list(self._delete(f"experiments/{experiment_id}/labels/{word(label)}")["labels"])

    def archive(self, experiment_id: int) -> None:
        """Archive an experiment: it becomes read-only and is left out of lists.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._post(f"experiments/{experiment_id}/archive")

    def unarchive(self, experiment_id: int) -> None:
        """Undo the archiving of an experiment.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._post(f"experiments/{experiment_id}/unarchive")

    def move(self, experiment_id: int, project_id: int) -> None:
        """Move an experiment to another project.

        Args:
            project_id: Number of the project.

        Raises:
            NoSuchThing: There is no such experiment or project.
            NotAllowed: The caller may not move it there.
        """
        body = {"experimentId": experiment_id, "destinationProjectId": project_id}
        self._post(f"experiments/{experiment_id}/move", body)

    def go_on(self, experiment_id: int, overrides: str) -> None:
        """Continue an experiment that has ended.

        Args:
            overrides: YAML that is merged over its configuration.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._post("experiments/continue", {"id": experiment_id, "overrideConfig": overrides}, retry=False)

    def files(self, experiment_id: int) -> bytes:
        """Download the training code of an experiment.

        Returns:
            A gzipped tar; empty if it has no code.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        return base64.b64decode(self._get(f"experiments/{experiment_id}/model_def")["b64Tgz"])

    def remove_tensorboard_files(self, experiment_id: int) -> None:
        """Delete the TensorBoard files of an experiment.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._delete(f"experiments/{experiment_id}/tensorboard-files")

    def pin_checkpoints(self, uuids: Sequence[str], pinned: bool = True) -> None:
        """Keep checkpoints whatever a policy or a request says, or no longer.

        Args:
            pinned: False lets them go again.

        Raises:
            NoSuchThing: There is no such checkpoint.
            NotAllowed: The caller may not change one of them.
        """
        body = {"checkpointUuids": list(uuids), "pinned": pinned}
        self._http.request("POST", "/api/x1/checkpoints/pins", body=body)

    def preview_gc(self, experiment_id: int, best: int, trial_best: int, trial_latest: int) -> Json:
        """Show which checkpoints another retention policy would delete.

        Args:
            best: Checkpoints to keep of the whole experiment, by the searcher's metric.
            trial_best: Checkpoints to keep of each trial, by the searcher's metric.
            trial_latest: Newest checkpoints to keep of each trial.

        Returns:
            `checkpoints` and `metric_name`.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        query = {"save_experiment_best": best, "save_trial_best": trial_best, "save_trial_latest": trial_latest}
        return self._http.request("GET", f"/experiments/{experiment_id}/preview_gc", query=query)

    # -- logs -----------------------------------------------------------------------------------------------------

    def retain_logs(self, experiment_id: int, days: int) -> None:
        """Set how long the logs of an experiment's trials are kept.

        Args:
            days: Days after the end of a trial; -1 for ever.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._put(f"experiments/{experiment_id}/retain_logs", {"experimentId": experiment_id, "numDays": days})

    def retain_trial_logs(self, trial_id: int, days: int) -> None:
        """Set how long the logs of a trial are kept.

        Args:
            trial_id: Number of the trial.
            days: Days after the end of the trial; -1 for ever.

        Raises:
            NoSuchThing: There is no such trial.
            NotAllowed: The caller may not change it.
        """
        self._put(f"trials/{trial_id}/retain_logs", {"trialId": trial_id, "numDays": days})

    def clean_up_logs(self) -> int:
        """Remove logs whose days are over now, without waiting for the scheduled clean-up. For administrators.

        Returns:
            The number of lines removed.

        Raises:
            NotAllowed: The caller is not an administrator.
        """
        return int(self._post("cleanup_logs")["removedCount"])

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def delete_checkpoints(self, uuids: Sequence[str]) -> None:
        """Delete the files of checkpoints. The master continues after the call has returned.

        Raises:
            NoSuchThing: One of them does not exist.
            NotAllowed: The caller may not delete them.
        """
        self._delete("checkpoints", {"checkpointUuids": list(uuids)})

    def set_checkpoint_metadata(self, uuid: str, metadata: Json) -> None:
        """Replace the metadata of a checkpoint.

        Args:
            uuid: Id of the checkpoint.
            metadata: All of the new metadata.

        Raises:
            NoSuchThing: There is no such checkpoint.
            NotAllowed: The caller may not change it.
        """
        self._post(f"checkpoints/{word(uuid)}/metadata", {"checkpoint": {"uuid": uuid, "metadata": metadata}})

    def remove_checkpoint_files(self, uuids: Sequence[str], globs: Sequence[str]) -> None:
        """Remove single files from checkpoints.

        Args:
            globs: Patterns of the files to remove; empty only reads the lists of files again.

        Raises:
            NoSuchThing: One of them does not exist.
            NotAllowed: The caller may not change them.
        """
        self._post("checkpoints/rm", {"checkpointUuids": list(uuids), "checkpointGlobs": list(globs)})
