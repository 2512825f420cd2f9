"""The model registry and templates, with the API's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainmaster.client.errors import ClientError
from trainmaster.client.resource import Json, Resource, given, word

if TYPE_CHECKING:
    from trainmaster.client import wire


LATEST = "latest"  # as a version: the newest one


class ModelRegistry(Resource):
    """Models, their versions, and templates. A model is given by name or number.

    Arguments of several calls:
        model, name: Name or number of the model.
        name: Name of the template.
        number: Number of the version.
    """

    # -- models ---------------------------------------------------------------------------------------------------

    def models(self, **query: Any) -> list[wire.Model]:
        """List models.

        Args:
            query: Filters, named as in the API: name, labels, workspaceNames, archived, sortBy ...

        Returns:
            The models that match.
        """
        return self._all("models", "models", **query)

    def model(self, name: str) -> wire.Model:
        """Get a model.

        Returns:
            The model.

        Raises:
            NoSuchThing: There is no such model.
        """
        model: wire.Model = self._get(f"models/{word(name)}")["model"]
        return model

    def labels(self) -> list[str]:
        """List the labels of all models.

        Returns:
            The labels, most used first.
        """
        return list(self._get("model/labels")["labels"])

    def create_model(self, name: str, **fields: Any) -> wire.Model:
        """Create a model.

        Args:
            name: Name of the model, unique in the registry.
            fields: Named as in the API: description, notes, labels, metadata, workspaceName ... None is not sent.

        Returns:
            The model.
        """
        model: wire.Model = self._post("models", {"name": name, **given(**fields)}, retry=False)["model"]
        return model

    def edit_model(self, model: str, /, **fields: Any) -> wire.Model:
        """Change a model.

        Args:
            fields: name, description, notes, labels, metadata. None is not sent.

        Returns:
            The model after the change.

        Raises:
            NoSuchThing: There is no such model.
            NotAllowed: The caller may not change it.
        """
        edited: wire.Model = self._patch(f"models/{word(model)}", given(**fields))["model"]
        return edited

    def delete_model(self, name: str) -> None:
        """Delete a model with its versions; the checkpoints stay.

        Raises:
            NoSuchThing: There is no such model.
            NotAllowed: The caller may not delete it.
        """
        self._delete(f"models/{word(name)}")

    def archive_model(self, name: str) -> None:
        """Archive a model: it becomes read-only and is left out of lists.

        Raises:
            NoSuchThing: There is no such model.
            NotAllowed: The caller may not change it.
        """
        self._post(f"models/{word(name)}/archive")

    def unarchive_model(self, name: str) -> None:
        """Undo the archiving of a model.

        Raises:
            NoSuchThing: There is no such model.
            NotAllowed: The caller may not change it.
        """
        self._post(f"models/{word(name)}/unarchive")

    def move_model(self, name: str, workspace_id: int) -> None:
        """Move a model to another workspace.

        Args:
            workspace_id: Number of the workspace.

        Raises:
            NoSuchThing: There is no such model or workspace.
            NotAllowed: The caller may not move it there.
        """
        self._post(f"models/{word(name)}/move", {"destinationWorkspaceId": workspace_id})

    def versions(self, name: str) -> list[wire.ModelVersion]:
        """List the versions of a model.

        Returns:
            The versions, newest first.

        Raises:
            NoSuchThing: There is no such model.
        """
        return self._all(f"models/{word(name)}/versions", "modelVersions", orderBy="ORDER_BY_DESC")

    def version(self, name: str, number: int) -> wire.ModelVersion:
        """Get one version of a model.

        Returns:
            The version.

        Raises:
            NoSuchThing: There is no such model or version.
        """
        version: wire.ModelVersion = self._get(f"models/{word(name)}/versions/{number}")["modelVersion"]
        return version

    def register(self, model: str, checkpoint: str, /, **fields: Any) -> wire.ModelVersion:
        """Register a checkpoint as the model's next version.

        Args:
            checkpoint: Id of the checkpoint.
            fields: name, comment, notes, labels, metadata. None is not sent.

        Returns:
            The version.

        Raises:
            NoSuchThing: There is no such model or checkpoint.
            NotAllowed: The caller may not change the model.
        """
        body = {"checkpointUuid": checkpoint, **given(**fields)}
        version: wire.ModelVersion = self._post(f"models/{word(model)}/versions", body, retry=False)["modelVersion"]
        return version

    def edit_version(self, model: str, number: int, /, **fields: Any) -> wire.ModelVersion:
        """Change a version.

        Args:
            fields: name, comment, notes, labels, metadata. None is not sent.

        Returns:
            The version after the change.

        Raises:
            NoSuchThing: There is no such model or version.
            NotAllowed: The caller may not change it.
        """
        version: wire.ModelVersion = self._patch(f"models/{word(model)}/versions/{number}", given(**fields))[
            "modelVersion"
        ]
        return version

    def delete_version(self, name: str, number: int) -> None:
        """Delete a version; the checkpoint stays.

        Raises:
            NoSuchThing: There is no such model or version.
            NotAllowed: The caller may not delete it.
        """
        self._delete(f"models/{word(name)}/versions/{number}")

    def aliases(self, name: str) -> dict[str, int]:
        """List the names of a model's versions.

        Returns:
            Alias -> number of the version.

        Raises:
            NoSuchThing: There is no such model.
        """
        return dict(self._http.request("GET", f"/api/x1/models/{word(name)}/aliases")["aliases"])

    def set_alias(self, name: str, alias: str, number: int) -> None:
        """Let an alias lead to a version, wherever it led before.

        Args:
            alias: Its name, such as production.

        Raises:
            NoSuchThing: There is no such model or version.
            NotAllowed: The caller may not change the model.
        """
        self._http.request("PUT", f"/api/x1/models/{word(name)}/aliases/{word(alias)}", body={"version": number})

    def remove_alias(self, name: str, alias: str) -> None:
        """Remove an alias; its version stays.

        Args:
            alias: Its name.

        Raises:
            NoSuchThing: There is no such model or alias.
            NotAllowed: The caller may not change the model.
        """
        self._http.request("DELETE", f"/api/x1/models/{word(name)}/aliases/{word(alias)}")

    def number(self, name: str, version: str) -> int:
        """Find the number of a version by what people call it.

        Args:
            version: A number, an alias, or latest for the newest one.

        Returns:
            The number.

        Raises:
            NoSuchThing: There is no such model.
            ClientError: It has no such version.
        """
        if version.isdecimal():
            return int(version)
        if version == LATEST:
            newest = self._get(f"models/{word(name)}/versions", orderBy="ORDER_BY_DESC", limit=1)["modelVersions"]
            if not newest:
                raise ClientError(f"The model {name!r} has no version yet.")
            return int(newest[0]["version"])
        aliases = self.aliases(name)
        if version not in aliases:
            known = ", ".join(aliases) or "none"
            raise ClientError(f"The model {name!r} has no alias {version!r}; it has: {known}.")
        return aliases[version]

    # -- templates ------------------------------------------------------------------------------------------------

    def templates(self) -> list[wire.Template]:
        """List the templates.

        Returns:
            The templates.
        """
        return self._all("templates", "templates")

    def template(self, name: str) -> wire.Template:
        """Get a template.

        Returns:
            The template.

        Raises:
            NoSuchThing: There is no such template.
        """
        template: wire.Template = self._get(f"templates/{word(name)}")["template"]
        return template

    def create_template(self, name: str, config: Json, workspace_id: int = 0) -> wire.Template:
        """Create a template.

        Args:
            config: The configuration that it holds.
            workspace_id: Number of its workspace; 0 for the default.

        Returns:
            The template.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not create templates there.
        """
        body = {"name": name, "config": config, "workspaceId": workspace_id}
        template: wire.Template = self._post(f"templates/{word(name)}", body, retry=False)["template"]
        return template

    def put_template(self, name: str, config: Json) -> wire.Template:
        """Create a template, or replace the configuration of an existing one.

        Args:
            config: The configuration that it holds.

        Returns:
            The template.

        Raises:
            NotAllowed: The caller may not change it.
        """
        template: wire.Template = self._put(f"templates/{word(name)}", {"name": name, "config": config})["template"]
        return template

    def set_template(self, name: str, config: Json) -> wire.Template:
        """Replace the configuration of a template.

        Args:
            config: The new configuration.

        Returns:
            The template after the change.

        Raises:
            NoSuchThing: There is no such template.
            NotAllowed: The caller may not change it.
        """
        template: wire.Template = self._patch(f"templates/{word(name)}", config)["template"]
        return template

    def delete_template(self, name: str) -> None:
        """Delete a template.

        Raises:
            NoSuchThing: There is no such template.
            NotAllowed: The caller may not delete it.
        """
        self._delete(f"templates/{word(name)}")
