"""The model registry and templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainmaster.client.resource import Json, Resource, given, word

if TYPE_CHECKING:
    from trainmaster.client import wire


class ModelRegistry(Resource):
    """Models are named by name or number."""

    # -- models ---------------------------------------------------------------------------------------------------

    def models(self, **query: Any) -> list[wire.Model]:
        """`query` as the API names it: name, workspaceNames, sortBy ..."""
        return self._all("models", "models", **query)

    def model(self, name: str) -> wire.Model:
        found: wire.Model = self._get(f"models/{word(name)}")["model"]
        return found

    def labels(self) -> list[str]:
        """All that models have, those most used first."""
        return list(self._get("model/labels")["labels"])

    def create_model(self, name: str, **fields: Any) -> wire.Model:
        found: wire.Model = self._post("models", {"name": name, **given(**fields)}, retry=False)["model"]
        return found

    def edit_model(self, model: str, /, **fields: Any) -> wire.Model:
        found: wire.Model = self._patch(f"models/{word(model)}", given(**fields))["model"]
        return found

    def delete_model(self, name: str) -> None:
        self._delete(f"models/{word(name)}")

    def steer_model(self, name: str, verb: str) -> None:
        """`verb`: archive or unarchive."""
        self._post(f"models/{word(name)}/{verb}")

    def move_model(self, name: str, workspace_id: int) -> None:
        self._post(f"models/{word(name)}/move", {"destinationWorkspaceId": workspace_id})

    def versions(self, name: str) -> list[wire.ModelVersion]:
        """The newest first."""
        return self._all(f"models/{word(name)}/versions", "modelVersions", orderBy="ORDER_BY_DESC")

    def version(self, name: str, number: int) -> wire.ModelVersion:
        found: wire.ModelVersion = self._get(f"models/{word(name)}/versions/{number}")["modelVersion"]
        return found

    def register(self, model: str, checkpoint: str, /, **fields: Any) -> wire.ModelVersion:
        body = {"checkpointUuid": checkpoint, **given(**fields)}
        found: wire.ModelVersion = self._post(f"models/{word(model)}/versions", body, retry=False)["modelVersion"]
        return found

    def edit_version(self, model: str, number: int, /, **fields: Any) -> wire.ModelVersion:
        found: wire.ModelVersion = self._patch(f"models/{word(model)}/versions/{number}", given(**fields))[
            "modelVersion"
        ]
        return found

    def delete_version(self, name: str, number: int) -> None:
        self._delete(f"models/{word(name)}/versions/{number}")

    # -- templates ------------------------------------------------------------------------------------------------

    def templates(self) -> list[wire.Template]:
        return self._all("templates", "templates")

    def template(self, name: str) -> wire.Template:
        found: wire.Template = self._get(f"templates/{word(name)}")["template"]
        return found

    def create_template(self, name: str, config: Json, workspace_id: int = 0) -> wire.Template:
        body = {"name": name, "config": config, "workspaceId": workspace_id}
        found: wire.Template = self._post(f"templates/{word(name)}", body, retry=False)["template"]
        return found

    def put_template(self, name: str, config: Json) -> wire.Template:
        """Make it or change it."""
        found: wire.Template = self._put(f"templates/{word(name)}", {"name": name, "config": config})["template"]
        return found

    def set_template(self, name: str, config: Json) -> wire.Template:
        found: wire.Template = self._patch(f"templates/{word(name)}", config)["template"]
        return found

    def delete_template(self, name: str) -> None:
        self._delete(f"templates/{word(name)}")
