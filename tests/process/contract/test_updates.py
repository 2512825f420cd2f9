"""The published client's own reader of `/stream`."""

from __future__ import annotations

import uuid

from tests.process.contract.conftest import Reference

FOLLOWING = """
from determined.common import streams
from determined.common.streams import _client, wire
from determined.common.api import bindings

client.login()
session = client._determined._session
name = sys.argv[1]
workspace = bindings.post_PostWorkspace(session, body=bindings.v1PostWorkspaceRequest(name=name)).workspace

def make(name):
    body = bindings.v1PostProjectRequest(name=name, workspaceId=workspace.id)
    return bindings.post_PostProject(session, body=body, workspaceId=workspace.id).project

first = make("first")
socket = _client.LomondStreamWebSocket(session)
stream = _client.Stream(socket)
stream.subscribe("mine", projects=_client.ProjectSpec(workspace_id=workspace.id),
                 models=_client.ModelSpec(workspace_id=workspace.id))
told = [next(stream)]
while told[-1] != _client.Sync("mine", True):
    told.append(next(stream))
second = make("second")
told.append(next(stream))
# The line breaks: what happens meanwhile is told when the client is back, by itself.
import socket as sockets
socket.ws.session._sock.shutdown(sockets.SHUT_RDWR)
bindings.patch_PatchProject(session, body=bindings.v1PatchProject(description="while away"), id=first.id)
bindings.delete_DeleteProject(session, id=second.id)
bindings.post_PostModel(session, body=bindings.v1PostModelRequest(name=name, workspaceId=workspace.id))
told += [next(stream), next(stream), next(stream)]
stream.close()
answer([[type(one).__name__, one.to_json()] for one in told])
"""


def test_it_follows_and_loses_nothing(client: Reference) -> None:
    name = f"followed-{uuid.uuid4().hex[:8]}"
    told = client.run(FOLLOWING, name)
    assert [kind for kind, _ in told[:4]] == ["Sync", "ProjectMsg", "Sync", "ProjectMsg"]
    assert [one["name"] for _, one in (told[1], told[3])] == ["first", "second"]
    later = {kind: one for kind, one in told[4:]}
    assert later["ProjectMsg"]["description"] == "while away"
    assert later["ProjectsDeleted"] == str(told[3][1]["id"])
    assert later["ModelMsg"]["name"] == name
