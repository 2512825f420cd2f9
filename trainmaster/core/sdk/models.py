"""`Model` and `ModelVersion`: the model registry."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional

from trainmaster.core.sdk.checkpoints import Checkpoint
from trainmaster.core.sdk.connection import Connection, quoted, word
from trainmaster.core.sdk.metrics import TrialMetrics
from trainmaster.core.sdk.words import OrderBy


class ModelVersion:
    """A checkpoint that was registered under a model's name.

    Attributes:
        model_name: Of the model.
        model_version: Its number.
        checkpoint: It.
        name: Of this version.
        notes: Its text.
    """

    def __init__(self, session: Connection, model_version: int, model_name: str) -> None:
        self._session = session
        self.model_version = model_version
        self.model_name = model_name
        self.checkpoint: Optional[Checkpoint] = None
        self.metadata: Dict[str, Any] = {}
        self.name = ""
        self.notes = ""
        self.comment = ""
        self.model_id: Optional[int] = None

    @classmethod
    def of(cls, session: Connection, found: Dict[str, Any]) -> ModelVersion:
        """Make one of the API's answer."""
        version = cls(session, found["version"], found["model"]["name"])
        version._take(found)
        return version

    def reload(self) -> None:
        """Ask the master anew.

        Raises:
            CoreError: There is no such version.
        """
        self._take(self._session.call("GET", self._path)["modelVersion"])

    def set_name(self, name: str) -> None:
        """Name this version."""
        self._session.call("PATCH", self._path, {"name": name})
        self.name = name

    def set_notes(self, notes: str) -> None:
        """Replace the text."""
        self._session.call("PATCH", self._path, {"notes": notes})
        self.notes = notes

    def delete(self) -> None:
        """Delete this version; the checkpoint stays."""
        self._session.call("DELETE", self._path)

    def iter_metrics(self, group: Optional[str] = None) -> Iterator[TrialMetrics]:
        """Yield what trials have reported that use this version."""
        found = self._session.call("GET", self._path + "/metrics", query={"metricGroup": group})
        return (TrialMetrics.of(each, group) for each in found["metrics"])

    get_metrics = iter_metrics

    def __repr__(self) -> str:
        return "ModelVersion(model_name=%r, model_version=%d)" % (self.model_name, self.model_version)

    @property
    def _path(self) -> str:
        return "/api/v1/models/%s/versions/%d" % (quoted(self.model_name), self.model_version)

    def _take(self, found: Dict[str, Any]) -> None:
        self.checkpoint = Checkpoint.of(self._session, found["checkpoint"])
        self.metadata = found.get("metadata") or {}
        self.name = found.get("name") or ""
        self.notes = found.get("notes") or ""
        self.comment = found.get("comment") or ""
        self.model_id = found["model"]["id"]


class Model:
    """A name in the registry, with versions.

    Attributes:
        name: It.
        model_id: Its number.
        description, metadata, labels, username, archived, creation_time, last_updated_time: As the master has them.
    """

    def __init__(self, session: Connection, name: str) -> None:
        self._session = session
        self.name = name
        self.model_id: Optional[int] = None
        self.description = ""
        self.metadata: Dict[str, Any] = {}
        self.labels: List[str] = []
        self.username = ""
        self.archived = False
        self.workspace_id: Optional[int] = None
        self.creation_time: Optional[str] = None
        self.last_updated_time: Optional[str] = None

    @classmethod
    def of(cls, session: Connection, found: Dict[str, Any]) -> Model:
        """Make one of the API's answer."""
        model = cls(session, found["name"])
        model._take(found)
        return model

    def reload(self) -> None:
        """Ask the master anew.

        Raises:
            CoreError: There is no such model.
        """
        self._take(self._session.call("GET", self._path)["model"])

    def get_version(self, version: int = -1) -> Optional[ModelVersion]:
        """Return a version.

        Args:
            version: Its number; -1 for the newest.

        Returns:
            It; None where a model has no version yet.

        Raises:
            CoreError: There is no such version.
        """
        if version == -1:
            return next(iter(self._versions(OrderBy.DESCENDING, 1)), None)
        found = self._session.call("GET", "%s/versions/%d" % (self._path, version))
        return ModelVersion.of(self._session, found["modelVersion"])

    def list_versions(self, order_by: OrderBy = OrderBy.DESCENDING) -> List[ModelVersion]:
        """Return all versions, by their numbers."""
        return self._versions(order_by)

    get_versions = list_versions

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Make a complete checkpoint the next version.

        Raises:
            CoreError: There is no such checkpoint, or it is not complete.
        """
        found = self._session.call("POST", self._path + "/versions", {"checkpointUuid": checkpoint_uuid})
        return ModelVersion.of(self._session, found["modelVersion"])

    def add_metadata(self, metadata: Dict[str, Any]) -> None:
        """Add entries to the metadata, or replace them."""
        self.reload()
        self._change(metadata={**self.metadata, **metadata})

    def remove_metadata(self, keys: List[str]) -> None:
        """Remove entries from the metadata; those that are not there are passed over."""
        self.reload()
        self._change(metadata={key: value for key, value in self.metadata.items() if key not in keys})

    def set_labels(self, labels: List[str]) -> None:
        """Replace the labels."""
        self._change(labels=list(labels))

    def set_description(self, description: str) -> None:
        """Replace the description."""
        self._change(description=description)

    def archive(self) -> None:
        """Hide the model in lists, and take no versions."""
        self._session.call("POST", self._path + "/archive")
        self.archived = True

    def unarchive(self) -> None:
        """Undo `archive`."""
        self._session.call("POST", self._path + "/unarchive")
        self.archived = False

    def delete(self) -> None:
        """Delete the model and its versions; the checkpoints stay."""
        self._session.call("DELETE", self._path)

    def __repr__(self) -> str:
        return "Model(name=%r)" % self.name

    @property
    def _path(self) -> str:
        return "/api/v1/models/" + quoted(self.name)

    def _versions(self, order_by: OrderBy, most: Optional[int] = None) -> List[ModelVersion]:
        query = {"sortBy": "SORT_BY_VERSION", "orderBy": word(order_by)}
        rows = self._session.rows(self._path + "/versions", "modelVersions", query, most)
        return [ModelVersion.of(self._session, found) for found in rows]

    def _change(self, **fields: Any) -> None:
        self._take(self._session.call("PATCH", self._path, fields)["model"])

    def _take(self, found: Dict[str, Any]) -> None:
        self.model_id = found["id"]
        self.description = found.get("description") or ""
        self.metadata = found.get("metadata") or {}
        self.labels = list(found.get("labels") or [])
        self.username = found.get("username") or ""
        self.archived = bool(found.get("archived"))
        self.workspace_id = found.get("workspaceId")
        self.creation_time = found.get("creationTime")
        self.last_updated_time = found.get("lastUpdatedTime")
