"""The published `det config-policies` and `det master cluster-message`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.process.contract.conftest import Reference
from tests.support.reference.batch import batch


def test_policies_and_the_banner(client: Reference, tmp_path: Path) -> None:
    policies = tmp_path / "p.yaml"
    policies.write_text("invariant_config:\n  description: policy\nconstraints:\n  priority_limit: 3\n")
    (tmp_path / "wrong.yaml").write_text("constraints: {weather: fine}\n")
    said = list(
        batch(
            replace(client, user="admin"),
            "workspace create governed",
            f"config-policies set experiment {policies} -w governed",
            "config-policies describe experiment -w governed",
            f"!config-policies set experiment {tmp_path}/wrong.yaml -w governed",
            "config-policies delete experiment -w governed",
            f"config-policies set tasks {policies}",
            "config-policies describe tasks --json",
            "config-policies delete tasks",
            ["master", "cluster-message", "set", "-m", "Back at noon", "-d", "2h"],
            "master cluster-message get",
            "master cluster-message clear",
        )
    )
    assert "priority_limit: 3" in said[1].out
    assert "description: policy" in said[2].out
    assert '"priority_limit": 3' in said[6].out
    assert "Back at noon" in said[9].out
