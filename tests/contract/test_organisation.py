"""Workspaces, projects and pool bindings by the published `det` and SDK."""

from __future__ import annotations

import json
import uuid

from tests.contract.batch import batch
from tests.contract.conftest import Reference
from trainmaster.client.organisation import Organisation
from trainmaster.client.transport import Transport

PROJECTS = """
client.login()
workspace = client.create_workspace(sys.argv[1])
project = workspace.create_project("cats", "of the house")
project.set_name("dogs"); project.set_description("loud"); project.set_key(sys.argv[2])
project.add_note("one", "first"); project.add_note("two", "second"); project.remove_note("one")
project.archive(); project.unarchive()
again = client.get_workspace(sys.argv[1]).get_project("dogs")
answer({
    "workspaces": [w.name for w in client.list_workspaces()],
    "projects": [[p.name, p.description, p.key, p.archived, p.notes] for p in workspace.list_projects()],
    "experiments": [e.id for e in again.list_experiments()],
    "pools": [pool.name for pool in workspace.list_pools()],
})
workspace.delete_project("dogs")
client.delete_workspace(sys.argv[1])
"""


def test_det(client: Reference) -> None:
    name = f"vision-{uuid.uuid4().hex[:8]}"
    said = list(
        batch(
            client,
            f"workspace create {name} --default-compute-pool default",
            f"workspace describe {name} --json",
            f"workspace list-pools {name}",
            f"workspace edit {name} --name {name}2",
            f"!workspace describe {name}",
            f"project create {name}2 cats --description house --key {name[-5:]}",
            f"project edit {name}2 cats --new_name dogs",
            f"project list {name}2",
            f"project describe {name}2 dogs",
            f"project list-experiments {name}2 dogs",
            f"project archive {name}2 dogs",
            f"project unarchive {name}2 dogs",
            f"workspace list-projects {name}2",
            f"workspace archive {name}2",
            f"workspace unarchive {name}2",
            "workspace list --sort-by name --order-by desc",
            "resource-pool bindings list-workspaces default",
            f"!resource-pool bindings add default {name}2",
        )
    )
    assert json.loads(said[1].out)["defaultComputePool"] == "default"
    assert said[2].rows() == [{"Workspace": name, "Available Resource Pools": "default"}]
    assert [(row["Name"], row["Key"], row["Description"]) for row in said[7].rows()] == [("dogs", name[-5:], "house")]
    assert [row["Name"] for row in said[12].rows()] == ["dogs"]
    assert f"{name}2" in {row["Name"] for row in said[15].rows()}
    http = Transport(client.master.url)
    http.token = client.master.client("determined").login("determined", client.master.password)
    master = Organisation(http)
    assert master.project(f"{name}2", "dogs")["archived"] is False
    list(batch(client, f"project delete {name}2 dogs --yes", f"workspace delete {name}2 --yes"))
    assert f"{name}2" not in {entry["name"] for entry in master.workspaces()}
    http.close()


def test_sdk(client: Reference) -> None:
    name = f"sound-{uuid.uuid4().hex[:8]}"
    found = client.run(PROJECTS, name, name[-5:])
    assert name in found["workspaces"]
    assert found["projects"] == [["dogs", "loud", name[-5:], False, [{"name": "two", "contents": "second"}]]]
    assert found["experiments"] == []
    assert found["pools"] == ["default"]
