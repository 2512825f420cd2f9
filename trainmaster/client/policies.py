"""Configuration policies, and the banner that everybody sees."""

from __future__ import annotations

from trainmaster.client.resource import Json, Resource, given


class Policies(Resource):
    """`workload`: EXPERIMENT or NTSC. `workspace_id` None: of the whole site."""

    def policies(self, workload: str, workspace_id: int | None = None) -> Json:
        return dict(self._get(_path(workload, workspace_id))["configPolicies"])

    def put_policies(self, workload: str, text: str, workspace_id: int | None = None) -> Json:
        """`text`: YAML with invariant_config and constraints."""
        body = {"configPolicies": text, "workloadType": workload}
        return dict(self._put(_path(workload, workspace_id), body)["configPolicies"])

    def delete_policies(self, workload: str, workspace_id: int | None = None) -> None:
        self._delete(_path(workload, workspace_id))

    def message(self) -> Json | None:
        """None when there is none."""
        found = self._get("master/cluster_message")["clusterMessage"]
        return None if found is None else dict(found)

    def set_message(self, text: str, start: str, end: str | None = None, duration: str | None = None) -> None:
        """Times are RFC 3339; a duration is written like 2w, 1d or 2h30m."""
        body = {"message": text, "startTime": start, **given(endTime=end, duration=duration)}
        self._put("master/cluster_message", body)

    def clear_message(self) -> None:
        self._delete("master/cluster_message")


def _path(workload: str, workspace_id: int | None) -> str:
    scope = "global" if workspace_id is None else f"workspaces/{workspace_id}"
    return f"config-policies/{scope}/{workload}"
