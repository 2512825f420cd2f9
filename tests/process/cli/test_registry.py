"""`det model` and `det template`."""

from __future__ import annotations

import uuid

from tests.process.cli.conftest import Finished
from tests.support.det_shell import Shell
from trainmaster.client.master import Master


def test_models(shell: Shell, api: Master, finished: Finished) -> None:
    name = f"cats-{uuid.uuid4().hex[:8]}"
    key = api.checkpoints(finished.id)[0].uuid
    assert shell.det("model", "create", name, "--description", "tells apart", "--json").json()["name"] == name
    assert name in {row["Name"] for row in shell.det("m", "ls", "--csv").csv()}
    assert [row["Version #"] for row in shell.det("model", "register-version", name, key).table()] == ["1"]
    assert shell.det("model", "describe", name).table(1)[0]["Checkpoint UUID"] == key
    assert shell.det("model", "list-versions", name, "--json").json()[0]["version"] == 1
    assert "modelVersions:" in shell.det("model", "describe", name, "--version", "1", "--yaml").out
    shell.det("workspace", "create", name)
    shell.det("model", "move", name, "-w", name)
    assert [row["Name"] for row in shell.det("model", "list", "-w", name, "--csv").csv()] == [name]
    shell.det("model", "archive", name)
    refused = shell.run("model", "register-version", name, key)
    assert (refused.status, "archived" in refused.sentence) == (1, True)
    shell.det("model", "unarchive", name)
    shell.det("model", "delete-version", name, "1")
    shell.det("model", "delete", name)
    missing = shell.run("model", "describe", name)
    assert (missing.status, name in missing.sentence) == (1, True)


def test_templates(shell: Shell, api: Master) -> None:
    name = f"gpu-{uuid.uuid4().hex[:8]}"
    (shell.cwd / "t.yaml").write_text("max_restarts: 7\n")
    (shell.cwd / "u.yaml").write_text("max_restarts: 8\n")
    (shell.cwd / "wrong.yaml").write_text("- a\n")
    shell.det("template", "create", name, "t.yaml", "-w", "Uncategorized")
    assert shell.det("template", "describe", name).out == "max_restarts: 7\n"
    assert {"Name": name, "Workspace": "Uncategorized"} in shell.det("tpl", "ls").table()
    shell.det("template", "set-value", "config", name, "u.yaml")
    assert shell.det("template", "describe", name, "--json").json() == {"max_restarts": 8}
    shell.det("template", "set", name, "t.yaml")
    text = "name: a\nentrypoint: x\nsearcher: {name: single, metric: loss}\n"
    (shell.cwd / "e.yaml").write_text(text)
    made = shell.det("experiment", "create", "e.yaml", "--template", name, "--paused", "--json").json()
    assert made["config"]["max_restarts"] == 7
    api.kill(made["id"])
    shell.det("template", "rm", name)
    refused = shell.run("template", "create", name, "wrong.yaml")
    assert (refused.status, "not a mapping" in refused.sentence) == (1, True)
