"""The published `det resources`, `det task`, `det master`, and lists of commands and the like."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.batch import batch
from tests.contract.conftest import Reference

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
