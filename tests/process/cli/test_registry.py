"""`det model` and `det template`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import yaml

from tests.process.cli.conftest import Finished
from tests.support import trainings
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


def test_best_checkpoint_is_registered_named_traced_downloaded_and_exported(
    shell: Shell, api: Master, finished: Finished
) -> None:
    name = f"dogs-{uuid.uuid4().hex[:8]}"
    shell.det("model", "create", name, "--description", "barks | <b>loudly</b>")
    best = api.experiment(finished.id).best_checkpoint()
    trial = str(best.trial_id)
    said = shell.det("model", "version", "register", name, "--trial", trial, "--alias", "production").out
    assert said == f"Registered checkpoint {best.uuid} as version 1 of {name}, production from now on\n"
    other = next(t for t in finished.trials if t.id != best.trial_id)
    made = shell.det("model", "version", "register", name, "--trial", str(other.id), "--comment", "wider", "--json")
    assert made.json()["version"] == 2
    shell.det("model", "version", "alias", name, "latest", "canary")
    assert shell.det("model", "version", "aliases", name, "--json").json() == {"canary": 2, "production": 1}
    shell.det("model", "version", "alias", name, "2", "production")
    shell.det("model", "version", "alias", name, "1", "production")  # rolled back

    folder = shell.cwd / "files"
    shell.det("model", "version", "download", name, "production", "-o", str(folder))
    assert {path.name for path in folder.iterdir()} == {Path(path).name for path in best.resources if "/" not in path}

    text = shell.det("model", "version", "lineage", name, "production").out
    assert f"trial {trial} of experiment {finished.id} ({finished.name})" in text
    assert shell.det("model", "version", "lineage", name, "production", "--json").json()["checkpoint"] == best.uuid

    out = shell.cwd / "export"
    assert shell.det("model", "version", "export", name, "production", "-o", str(out)).out == f"{out}\n"
    readme = (out / "README.md").read_text()
    assert readme.startswith(f"# {name}, version 1\n\nbarks \\| &lt;b>loudly&lt;/b>\n")
    assert "| aliases | production |" in readme
    assert (out / "code" / "train.py").read_text() == trainings.COUNTING
    assert yaml.safe_load((out / "experiment.yaml").read_text())["searcher"]["metric"] == "error"
    assert json.loads((out / "origin.json").read_text())["training"]["trial"] == best.trial_id
    assert sorted(path.name for path in (out / "checkpoint").iterdir()) == sorted(
        path.name for path in folder.iterdir()
    )
    again = shell.run("model", "version", "export", name, "1", "-o", str(out))
    assert (again.status, "already exists" in again.sentence) == (1, True)

    shell.det("model", "version", "unalias", name, "canary")
    for arguments, words in (
        (("download", name, "canary"), "has no alias 'canary'; it has: production"),
        (("alias", name, "1", "latest"), "cannot be an alias"),
        (("alias", name, "1", "7up"), "cannot be an alias"),
        (("alias", name, "9", "x"), "has no version 9"),
        (("unalias", name, "x"), "has no alias 'x'"),
        (("register", name), "name one of them"),
        (("register", name, best.uuid, "--trial", trial), "name one of them"),
    ):
        refused = shell.run("model", "version", *arguments)
        assert refused.status != 0, arguments
        assert words in refused.err, refused.err
    shell.det("model", "delete-version", name, "1")
    assert api.registry.aliases(name) == {}
    shell.det("model", "delete", name)


def test_pinned_checkpoint_survives_requests_and_policies(shell: Shell, api: Master, finished: Finished) -> None:
    best = api.experiment(finished.id).best_checkpoint()
    shell.det("checkpoint", "pin", best.uuid)
    refused = shell.run("checkpoint", "delete", best.uuid, "--yes")
    assert (refused.status, "because it is pinned" in refused.sentence) == (1, True)
    assert best.uuid not in doomed(api, finished.id)
    shell.det("checkpoint", "unpin", best.uuid)
    assert best.uuid in doomed(api, finished.id)


def doomed(api: Master, number: int) -> str:
    """What a policy that keeps nothing would remove."""
    return str(api.edits.preview_gc(number, 0, 0, 0))
