"""Configuration policies, and the banner that all users see."""

from __future__ import annotations

from trainmaster.client.resource import Json, Resource, given


class Policies(Resource):
    """Invariants and constraints for configurations, of the whole site or of a workspace."""

    def policies(self, workload: str, workspace_id: int | None = None) -> Json:
        """Get the policies.

        Args:
            workload: EXPERIMENT, or NTSC for notebooks, TensorBoards, shells and commands.
            workspace_id: Number of the workspace; None for the whole site.

        Returns:
            The policies; empty if there are none.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not see them.
        """
        return dict(self._get(_path(workload, workspace_id))["configPolicies"])

    def put_policies(self, workload: str, text: str, workspace_id: int | None = None) -> Json:
        """Replace the policies.

        Args:
            workload: EXPERIMENT or NTSC.
            text: YAML with `invariant_config` and `constraints`.
            workspace_id: Number of the workspace; None for the whole site.

        Returns:
            The policies after the change.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change them.
        """
        body = {"configPolicies": text, "workloadType": workload}
        return dict(self._put(_path(workload, workspace_id), body)["configPolicies"])

    def delete_policies(self, workload: str, workspace_id: int | None = None) -> None:
        """Remove the policies.

        Args:
            workload: EXPERIMENT or NTSC.
            workspace_id: Number of the workspace; None for the whole site.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change them.
        """
        self._delete(_path(workload, workspace_id))

    def message(self) -> Json | None:
        """Get the banner as it was set, also before it is shown. For administrators.

        Returns:
            The banner; None if there is none.

        Raises:
            NotAllowed: The caller may not set it.
        """
        message = self._get("master/cluster_message")["clusterMessage"]
        return None if message is None else dict(message)

    def set_message(self, text: str, start: str, end: str | None = None, duration: str | None = None) -> None:
        """Set the banner. For administrators.

        Args:
            text: Its text.
            start: From when it is shown, RFC 3339.
            end: Until when it is shown, RFC 3339.
            duration: How long it is shown, such as 2w, 1d or 2h30m; instead of `end`. With neither it stays.

        Raises:
            NotAllowed: The caller is not an administrator.
        """
        body = {"message": text, "startTime": start, **given(endTime=end, duration=duration)}
        self._put("master/cluster_message", body)

    def clear_message(self) -> None:
        """Remove the banner. For administrators.

        Raises:
            NotAllowed: The caller is not an administrator.
        """
        self._delete("master/cluster_message")


def _path(workload: str, workspace_id: int | None) -> str:
    scope = "global" if workspace_id is None else f"workspaces/{workspace_id}"
    return f"config-policies/{scope}/{workload}"
