"""`det config-policies` and `det master cluster-message`."""

from __future__ import annotations

import uuid

from tests.support.det_shell import Shell


def test_policies(shell: Shell) -> None:
    name = uuid.uuid4().hex
    shell.det("workspace", "create", name)
    boss = shell.with_(DET_USER="admin")
    (shell.cwd / "p.yaml").write_text("constraints:\n  priority_limit: 40\n")
    assert "priority_limit: 40" in boss.det("config-policies", "set", "experiment", "p.yaml", "-w", name).out
    assert shell.det("cp", "describe", "experiment", "-w", name, "--json").json() == {
        "constraints": {"priority_limit": 40}
    }
    refused = shell.run("config-policies", "delete", "experiment", "-w", name)
    assert refused.status == 1
    assert boss.det("config-policies", "delete", "experiment", "-w", name).out.endswith(f"{name}\n")
    assert shell.det("config-policies", "describe", "experiment", "-w", name).out == "{}\n"
    missing = boss.run("config-policies", "set", "tasks", "none.yaml")
    assert (missing.status, "none.yaml" in missing.sentence) == (1, True)


def test_the_banner(shell: Shell) -> None:
    boss = shell.with_(DET_USER="admin")
    boss.det("master", "cluster-message", "set", "-m", "Back at noon", "-d", "2h")
    assert "Back at noon" in boss.det("master", "cluster-message", "get").out
    assert boss.det("master", "cluster-message", "get", "--json").json()["message"] == "Back at noon"
    assert shell.run("master", "cluster-message", "get").status == 1
    boss.det("master", "cluster-message", "clear")
    assert boss.det("master", "cluster-message", "get").out == "There is no message.\n"
