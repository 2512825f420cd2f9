"""What the site's people do by the published client's bindings: webhooks, the deletion of a workspace in use, parts of
an account, the cluster message."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.process.contract.conftest import Reference
from tests.support.master import wait_for
from trainmaster.client.errors import NoSuchThing
from trainmaster.client.master import Master

BINDINGS = """
from determined.common.api import bindings as b, errors
from determined.experimental import Determined
session = Determined()._session
"""

WEBHOOKS = (
    BINDINGS
    + """
ends = [b.v1Trigger(triggerType=b.v1TriggerType.EXPERIMENT_STATE_CHANGE, condition={"state": "COMPLETED"})]
alerts = [b.v1Trigger(triggerType=b.v1TriggerType.CUSTOM)]

def made(triggers, mode, workspace=None, name=""):
    body = b.v1Webhook(
        url="https://hooks.example/x", webhookType=b.v1WebhookType.SLACK, triggers=triggers, mode=mode, name=name,
        workspaceId=workspace,
    )
    try:
        return b.post_PostWebhook(session, body=body).webhook
    except errors.APIException as error:
        return str(error)

mine = b.post_PostWorkspace(session, body=b.v1PostWorkspaceRequest(name=sys.argv[1])).workspace
own = [made(ends, b.v1WebhookMode.WORKSPACE, mine.id) for _ in range(2)]
alert = made(alerts, b.v1WebhookMode.SPECIFIC, mine.id)
seen = {hook.id: hook for hook in b.get_GetWebhooks(session).webhooks}
answer({
    "own": [[hook.name, hook.url, hook.workspaceId == mine.id] for hook in own],
    "alert": alert.mode.name,
    "wrong": made(alerts, b.v1WebhookMode.WORKSPACE, mine.id),
    "seen": all(hook.id in seen for hook in (*own, alert)),
})
for hook in (*own, alert):
    b.delete_DeleteWebhook(session, id=hook.id)
b.delete_DeleteWorkspace(session, id=mine.id)
"""
)

DELETE = (
    BINDINGS
    + """
workspace = b.post_PostWorkspace(session, body=b.v1PostWorkspaceRequest(name=sys.argv[1])).workspace
notebook = b.post_LaunchNotebook(session, body=b.v1LaunchNotebookRequest(workspaceId=workspace.id)).notebook
done = b.delete_DeleteWorkspace(session, id=workspace.id).completed
answer({"id": workspace.id, "notebook": notebook.id, "done": done})
"""
)

PARTS = (
    BINDINGS
    + """
group = b.v1AgentUserGroup(agentGid=1234, agentGroup="group1234")
body = b.v1PostWorkspaceRequest(name=sys.argv[1], agentUserGroup=group)
made = b.post_PostWorkspace(session, body=body).workspace
renamed = b.patch_PatchWorkspace(session, body=b.v1PatchWorkspace(name=sys.argv[1] + "2"), id=made.id).workspace
answer([renamed.name, renamed.agentUserGroup.to_json(), made.pinned])
b.delete_DeleteWorkspace(session, id=made.id)
"""
)


def test_the_owner_of_a_workspace_makes_webhooks_without_names(client: Reference) -> None:
    said = client.run(WEBHOOKS, "hooked")
    assert said["own"] == [["", "https://hooks.example/x", True]] * 2
    assert (said["alert"], said["seen"]) == ("SPECIFIC", True)
    assert "custom trigger only works on" in said["wrong"]


def test_a_workspace_with_a_notebook_is_deleted(client: Reference, truth: Master) -> None:
    made = client.run(DELETE, "in use")
    assert made["done"] is False

    def gone() -> bool:
        try:
            truth.tasks.get("notebook", made["notebook"])
        except NoSuchThing:
            return True
        return False

    wait_for(gone, "the end of the notebook with its workspace")
    client.det("workspace", "describe", "in use", status=1)


def test_a_workspace_names_the_group_alone(client: Reference) -> None:
    name, group, pinned = replace(client, user="admin").run(PARTS, "grouped")
    assert (name, pinned) == ("grouped2", True)
    assert {key: value for key, value in group.items() if value is not None} == {
        "agentGid": 1234, "agentGroup": "group1234",
    }  # fmt: skip


def test_the_cluster_message_keeps_its_times(client: Reference) -> None:
    boss = replace(client, user="admin")
    end = "2100-01-01T00:00:00.123456Z"
    boss.det("master", "cluster-message", "set", "-m", "Back at noon", "--end", end)
    assert json.loads(boss.det("master", "cluster-message", "get", "--json"))["clusterMessage"]["endTime"] == end
    assert json.loads(client.det("master", "info", "--json"))["clusterMessage"]["message"] == "Back at noon"
    client.det("master", "cluster-message", "get", status=1)
    boss.det("master", "cluster-message", "clear")
    assert json.loads(boss.det("master", "cluster-message", "get", "--json"))["clusterMessage"] is None
