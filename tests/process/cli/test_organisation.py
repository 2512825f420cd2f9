"""`det workspace`, `det project` and `det resource-pool`: their output and their effects."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.det_shell import Shell
from tests.support.master import MasterProcess
from trainmaster.client.errors import NoSuchThing
from trainmaster.client.master import Master
from trainmaster.client.organisation import Organisation
from trainmaster.client.transport import Transport


@pytest.fixture
def organisation(process: MasterProcess) -> Iterator[Organisation]:
    http = Transport(process.url)
    Master(http).login("determined", process.password)
    yield Organisation(http)
    http.close()


def test_workspaces_and_projects(shell: Shell, organisation: Organisation) -> None:
    name = f"vision-{uuid.uuid4().hex[:8]}"
    assert shell.det("workspace", "create", name, "--json").json()["name"] == name
    assert name in {row["Name"] for row in shell.det("w", "ls", "--csv").csv()}
    assert [row["Name"] for row in shell.det("workspace", "describe", name).table()] == [name]
    assert shell.det("workspace", "list-pools", name, "--json").json() == ["default"]
    shell.det("workspace", "edit", name, "--name", f"{name}2", "--default-compute-pool", "default")
    name = f"{name}2"
    assert organisation.workspace(name)["defaultComputePool"] == "default"
    for verb, done in (("archive", "Archived"), ("unarchive", "Unarchived"), ("pin", "Pinned"), ("unpin", "Unpinned")):
        assert shell.det("workspace", verb, name).out == f"{done} workspace {name}\n"
    shell.det("project", "create", name, "cats", "--description", "of the house")
    assert [row["Name"] for row in shell.det("project", "list", name, "--csv").csv()] == ["cats"]
    assert "name: cats" in shell.det("project", "describe", name, "cats", "--yaml").out
    assert shell.det("workspace", "list-projects", name, "--json").json()[0]["description"] == "of the house"
    shell.det("project", "edit", name, "cats", "--new_name", "dogs")
    assert shell.det("project", "list-experiments", name, "dogs", "--json").json() == []
    shell.det("project", "archive", name, "dogs")
    assert organisation.project(name, "dogs")["archived"]
    shell.det("project", "unarchive", name, "dogs")
    shell.det("workspace", "create", f"{name}3")
    shell.det("project", "move", name, "dogs", f"{name}3")
    assert organisation.project(f"{name}3", "dogs")["workspaceName"] == f"{name}3"
    shell.det("project", "delete", f"{name}3", "dogs", "--yes")
    assert shell.det("workspace", "delete", name, "--yes").out == f"Deleted workspace {name}\n"
    with pytest.raises(NoSuchThing):
        organisation.workspace(name)
    refused = shell.run("workspace", "delete", f"{name}3")
    assert (refused.status, "--yes" in refused.sentence) == (2, True)
    missing = shell.run("workspace", "describe", name)
    assert (missing.status, name in missing.sentence) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--agent-uid", "4711"], "--agent-group"),
        (["--checkpoint-storage-config", "{"], "JSON"),
        (["--checkpoint-storage-config", "3"], "object"),
    ],
)
def test_settings_that_are_written_wrongly(shell: Shell, arguments: list[str], word: str) -> None:
    done = shell.run("workspace", "create", "never", *arguments)
    assert done.status == 2
    assert word in done.sentence


def test_pools_are_kept_by_name(shell: Shell) -> None:
    assert shell.det("resource-pool", "list", "--json").json()[0]["name"] == "default"
    assert shell.det("rp", "bindings", "list-workspaces", "default", "--json").json() == []
    admin = shell.with_(DET_USER="admin")
    refused = admin.run("resource-pool", "bindings", "add", "default", "Uncategorized")
    assert (refused.status, "default resource pool" in refused.sentence) == (1, True)
