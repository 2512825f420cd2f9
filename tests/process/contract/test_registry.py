"""Models and templates by the published `det` and SDK."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support import trainings
from tests.support.master import files, wait_ended
from tests.support.reference.batch import batch
from trainmaster.client.master import Master

SDK = """
client.login()
name, key = sys.argv[1], sys.argv[2]
model = client.create_model(name, "tells apart", {"a": 1})
model.add_metadata({"b": 2}); model.remove_metadata(["a"])
model.set_labels(["x", "y"]); model.set_description("described")
version = model.register_version(key)
version.set_name("first"); version.set_notes("noted")
again = client.get_model(name)
found = again.get_version()
answer({
    "labels": sorted(again.labels), "metadata": again.metadata, "description": again.description,
    "version": [found.model_version, found.name, found.notes, found.checkpoint.uuid],
    "versions": [v.model_version for v in model.list_versions()],
    "models": [m.name for m in client.list_models(name=name)],
    "by_id": client.get_model_by_id(model.model_id).name,
    "all_labels": client.get_model_labels(),
    "metrics": list(found.iter_metrics("validation")),
})
model.archive(); model.unarchive()
version.delete()
model.delete()
"""


@pytest.fixture(scope="module")
def checkpoint(running: object, truth: Master) -> str:
    text = trainings.experiment(epochs=1, pause=0.01)
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_ended(truth, number)
    return truth.checkpoints(number)[0].uuid


def test_sdk(client: Reference, checkpoint: str) -> None:
    name = f"cats-{uuid.uuid4().hex[:8]}"
    found = client.run(SDK, name, checkpoint)
    assert (found["labels"], found["metadata"], found["description"]) == (["x", "y"], {"b": 2}, "described")
    assert found["version"] == [1, "first", "noted", checkpoint]
    assert (found["versions"], found["models"], found["by_id"], found["metrics"]) == ([1], [name], name, [])
    assert {"x", "y"} <= set(found["all_labels"])


def test_det(client: Reference, checkpoint: str, tmp_path: Path) -> None:
    name = f"dogs-{uuid.uuid4().hex[:8]}"
    (tmp_path / "t.yaml").write_text("max_restarts: 7\n")
    (tmp_path / "u.yaml").write_text("max_restarts: 8\n")
    said = list(
        batch(
            client,
            f"workspace create {name}",
            f"model create {name} -w Uncategorized --description house",
            f"model register-version {name} {checkpoint}",
            f"model describe {name}",
            f"model list-versions {name}",
            f"model list-versions {name} --json",
            f"model move {name} -w {name}",
            f"model list -w {name} --json",
            f"model delete {name}",
            f"!model describe {name}",
            f"template create {name} {tmp_path}/t.yaml -w {name}",
            "template list",
            f"template describe {name}",
            f"template set-value config {name} {tmp_path}/u.yaml",
            f"template describe {name}",
            f"template set {name} {tmp_path}/t.yaml",
            f"template remove {name}",
            f"!template describe {name}",
        )
    )
    assert checkpoint in said[3].out
    assert json.loads(said[5].out)["modelVersions"][0]["checkpoint"]["uuid"] == checkpoint
    assert [entry["name"] for entry in json.loads(said[7].out)] == [name]
    assert (said[12].out.strip(), said[14].out.strip()) == ("max_restarts: 7", "max_restarts: 8")
