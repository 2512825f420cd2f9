"""The model registry and templates."""

from __future__ import annotations

from typing import Any

from trainmaster.client.resource import Json, Resource, given, word


class Registry(Resource):
    """Models are named by name or number."""

    # -- models ---------------------------------------------------------------------------------------------------

    def models(self, **query: Any) -> list[Json]:
        """`query` as the API names it: name, workspaceNames, sortBy ..."""
        return self._all("models", "models", **query)

    def model(self, name: str) -> Json:
        return dict(self._get(f"models/{word(name)}")["model"])

    def create_model(self, name: str, **fields: Any) -> Json:
        return dict(self._post("models", {"name": name, **given(**fields)}, retry=False)["model"])

    def edit_model(self, name: str, **fields: Any) -> Json:
        return dict(self._patch(f"models/{word(name)}", given(**fields))["model"])

    def delete_model(self, name: str) -> None:
        self._delete(f"models/{word(name)}")

    def steer_model(self, name: str, verb: str) -> None:
        """`verb`: archive or unarchive."""
        self._post(f"models/{word(name)}/{verb}")

    def move_model(self, name: str, workspace_id: int) -> None:
        self._post(f"models/{word(name)}/move", {"destinationWorkspaceId": workspace_id})

    def versions(self, name: str) -> list[Json]:
        """The newest first."""
        return self._all(f"models/{word(name)}/versions", "modelVersions", orderBy="ORDER_BY_DESC")

    def version(self, name: str, number: int) -> Json:
        return dict(self._get(f"models/{word(name)}/versions/{number}")["modelVersion"])

    def register(self, name: str, checkpoint: str, **fields: Any) -> Json:
        body = {"checkpointUuid": checkpoint, **given(**fields)}
        return dict(self._post(f"models/{word(name)}/versions", body, retry=False)["modelVersion"])

    def edit_version(self, name: str, number: int, **fields: Any) -> Json:
        return dict(self._patch(f"models/{word(name)}/versions/{number}", given(**fields))["modelVersion"])

    def delete_version(self, name: str, number: int) -> None:
        self._delete(f"models/{word(name)}/versions/{number}")

    # -- templates ------------------------------------------------------------------------------------------------

    def templates(self) -> list[Json]:
        return self._all("templates", "templates")

    def template(self, name: str) -> Json:
        return dict(self._get(f"templates/{word(name)}")["template"])

    def create_template(self, name: str, config: Json, workspace_id: int = 0) -> Json:
        body = {"name": name, "config": config, "workspaceId": workspace_id}
        return dict(self._post(f"templates/{word(name)}", body, retry=False)["template"])

    def put_template(self, name: str, config: Json) -> Json:
        """Make it or change it."""
        return dict(self._put(f"templates/{word(name)}", {"name": name, "config": config})["template"])

    def set_template(self, name: str, config: Json) -> Json:
        return dict(self._patch(f"templates/{word(name)}", config)["template"])

    def delete_template(self, name: str) -> None:
        self._delete(f"templates/{word(name)}")
