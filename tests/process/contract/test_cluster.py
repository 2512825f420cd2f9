"""The published `det resources`, `det task`, `det master`, and lists of commands and the like."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from tests.process.contract.conftest import Reference
from tests.support.reference.batch import batch
from trainmaster.client.master import Master

SPAN = "2020-01-01T00:00:00Z 2100-01-01T00:00:00Z"


def test_the_master_as_a_whole(client: Reference) -> None:
    said = list(
        batch(
            replace(client, user="admin"),
            f"resources raw {SPAN}",
            f"resources raw {SPAN} --json",
            f"resources allocations {SPAN}",
            "resources aggregated 2026-01-01 2026-01-02",
            "resources aggregated 2026-01-01 2026-01-02 --json --monthly",
            "task list",
            "master config show",
            "master logs --tail 2",
            "master config set --log.level INFO",
            "master info",
            "agent list",
            "slot list",
        )
    )
    assert "username" in said[0].out
    assert "resourceEntries" in said[1].out
    assert said[2].out.startswith("allocation_id,")
    assert "2026-01-02" in said[3].out
    assert "Task ID" in said[5].out
    assert "signing_key" in said[6].out
    assert said[7].out.count("\n") == 2
    (agent,), slots = said[10].rows(), said[11].rows()
    assert (agent["Slots"], agent["Resource Pool"], agent["Enabled"]) == (str(len(slots)), "default", "True")
    assert {(slot["Agent ID"], slot["Type"]) for slot in slots} == {(agent["Agent ID"], "cpu")}
    assert {slot["Allocation ID"] for slot in slots} <= {"FREE", "OCCUPIED"}


def test_for_developers(client: Reference) -> None:
    said = list(
        batch(
            client,
            "dev auth-token",
            "dev bindings list",
            "dev bindings call get_GetMe",
            "dev bindings call get_GetExperiments limit=1 archived=false",
            "!dev bindings call get_GetExperiment experimentId=99999",
        )
    )
    assert len(said[0].out.strip()) > 20
    assert "get_GetExperiments" in said[1].out
    assert json.loads(said[2].out)["user"]["username"] == "determined"
    assert "pagination" in json.loads(said[3].out)
    assert "99999" in said[4].err


# The published client runs the machine's curl. scripts/test installs it as root.
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which `det dev curl` runs")
def test_curl(client: Reference, truth: Master) -> None:
    assert json.loads(client.det("dev", "curl", "/api/v1/master"))["clusterId"] == truth.info()["clusterId"]
