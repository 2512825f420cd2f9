"""Workspaces, projects and pool bindings by the published `det` and SDK."""

from __future__ import annotations

import json
import uuid

from tests.process.contract.conftest import Reference
from tests.support.reference.batch import batch
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


def _name_and_key(word: str) -> tuple[str, str]:
    """A workspace and the key of a project in it, both unique.

    The key begins with a letter: the client's table takes one like 682e5 for a number, and shows 6.82e+07.
    """
    tag = uuid.uuid4().hex
    return f"{word}-{tag[:8]}", f"k{tag[:4]}"


def test_det(client: Reference) -> None:
    name, key = _name_and_key("vision")
    said = list(
        batch(
            client,
            f"workspace create {name} --default-compute-pool default",
            f"workspace describe {name} --json",
            f"workspace list-pools {name}",
            f"workspace edit {name} --name {name}2",
            f"!workspace describe {name}",
            f"project create {name}2 cats --description house --key {key}",
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
    assert [(row["Name"], row["Key"], row["Description"]) for row in said[7].rows()] == [("dogs", key, "house")]
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
    name, key = _name_and_key("sound")
    found = client.run(PROJECTS, name, key)
    assert name in found["workspaces"]
    assert found["projects"] == [["dogs", "loud", key, False, [{"name": "two", "contents": "second"}]]]
    assert found["experiments"] == []
    assert found["pools"] == ["default"]
