"""What is changed about experiments, trials and checkpoints."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from trainmaster.client.resource import Json, Resource, word


class Experiments(Resource):
    """Verbs of owners; looking is `Master`'s."""

    def edit(self, experiment_id: int, **fields: Any) -> Json:
        """`fields` as the API names them: name, description, notes, labels, resources, checkpointStorage."""
        return dict(self._patch(f"experiments/{experiment_id}", {"id": experiment_id, **fields})["experiment"])

    def add_label(self, experiment_id: int, label: str) -> list[str]:
        return list(self._put(f"experiments/{experiment_id}/labels/{word(label)}", {})["labels"])

    def remove_label(self, experiment_id: int, label: str) -> list[str]:
        return list(self._delete(f"experiments/{experiment_id}/labels/{word(label)}")["labels"])

    def steer(self, experiment_id: int, verb: str) -> None:
        """`verb`: archive or unarchive."""
        self._post(f"experiments/{experiment_id}/{verb}")

    def move(self, experiment_id: int, project_id: int) -> None:
        body = {"experimentId": experiment_id, "destinationProjectId": project_id}
        self._post(f"experiments/{experiment_id}/move", body)

    def go_on(self, experiment_id: int, overrides: str) -> None:
        """Continue one that has ended; `overrides` is YAML."""
        self._post("experiments/continue", {"id": experiment_id, "overrideConfig": overrides}, retry=False)

    def files(self, experiment_id: int) -> bytes:
        """The training code as a gzipped tar; empty for none."""
        return base64.b64decode(self._get(f"experiments/{experiment_id}/model_def")["b64Tgz"])

    def remove_tensorboard_files(self, experiment_id: int) -> None:
        self._delete(f"experiments/{experiment_id}/tensorboard-files")

    def preview_gc(self, experiment_id: int, best: int, trial_best: int, trial_latest: int) -> Json:
        """What would go under another policy: `checkpoints` and `metric_name`."""
        query = {"save_experiment_best": best, "save_trial_best": trial_best, "save_trial_latest": trial_latest}
        return self._http.request("GET", f"/experiments/{experiment_id}/preview_gc", query=query)

    # -- logs -----------------------------------------------------------------------------------------------------

    def retain_logs(self, experiment_id: int, days: int) -> None:
        """So many days after a trial's end; -1 for ever."""
        self._put(f"experiments/{experiment_id}/retain_logs", {"experimentId": experiment_id, "numDays": days})

    def retain_trial_logs(self, trial_id: int, days: int) -> None:
        self._put(f"trials/{trial_id}/retain_logs", {"trialId": trial_id, "numDays": days})

    def clean_up_logs(self) -> int:
        """Remove logs whose days are over, now; how many lines there were. For administrators."""
        return int(self._post("cleanup_logs")["removedCount"])

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def delete_checkpoints(self, uuids: Sequence[str]) -> None:
        self._delete("checkpoints", {"checkpointUuids": list(uuids)})

    def set_checkpoint_metadata(self, uuid: str, metadata: Json) -> None:
        """In place of what there was."""
        self._post(f"checkpoints/{word(uuid)}/metadata", {"checkpoint": {"uuid": uuid, "metadata": metadata}})

    def remove_checkpoint_files(self, uuids: Sequence[str], globs: Sequence[str]) -> None:
        """Files that match; without patterns the lists of files are read anew."""
        self._post("checkpoints/rm", {"checkpointUuids": list(uuids), "checkpointGlobs": list(globs)})
