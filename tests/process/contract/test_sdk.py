"""The published Python SDK."""

from __future__ import annotations

from pathlib import Path

from tests.process.contract.conftest import Reference
from tests.support.master import only_trial
from trainmaster.client.master import Master

WHOLE_WAY = """
client.login()
experiment = client.create_experiment(sys.argv[1], sys.argv[2])
state = experiment.wait(interval=0.2)
trials = experiment.list_trials()
trial = trials[0]
rows = {group: [[m.trial_id, m.steps_completed, m.metrics] for m in trial.iter_metrics(group)]
        for group in ("training", "validation")}
checkpoints = experiment.list_checkpoints()
again = client.get_checkpoint(checkpoints[0].uuid)
answer({
    "id": experiment.id, "name": experiment.name, "state": state.value, "trials": [t.id for t in trials],
    "hparams": trial.hparams, "trial_state": trial.state.value, "rows": rows,
    "summary": trial.summary_metrics,
    "checkpoints": [[c.uuid, c.state.value, c.metadata, c.training.trial_id, sorted(c.resources)] for c in checkpoints],
    "again": again.uuid,
    "logs": [line for line in trial.logs() if "starting after" in line],
    "top": experiment.top_checkpoint().uuid,
    "best": [c.uuid for c in trial.list_checkpoints()],
    "mine": [e.id for e in client.list_experiments()],
})
"""

STEERING = """
client.login()
experiment = client.create_experiment(sys.argv[1], sys.argv[2])
trial = experiment.await_first_trial()
experiment.pause()
experiment.reload()
paused = experiment.state.value
experiment.activate()
experiment.kill()
answer({"paused": paused, "ended": experiment.wait(interval=0.2).value, "trial": trial.id, "id": experiment.id})
"""


def test_an_experiment_from_its_creation_to_its_checkpoints(client: Reference, training: Path, truth: Master) -> None:
    found = client.run(WHOLE_WAY, str(training / "quick.yaml"), str(training))
    trial = only_trial(truth, found["id"])
    assert (found["state"], found["trial_state"]) == ("STATE_COMPLETED", "STATE_COMPLETED")
    assert found["trials"] == [trial.id]
    assert found["hparams"]["epochs"] == 4
    assert found["rows"]["training"] == [[trial.id, n, {"loss": 1.0 / n}] for n in (1, 2, 3, 4)]
    assert [row[:2] for row in found["rows"]["validation"]] == [[trial.id, n] for n in (1, 2, 3, 4)]
    assert found["rows"]["validation"][3][2] == {"error": 0.25, "epochs": 4}
    assert found["summary"]["validation_metrics"]["error"]["min"] == 0.25
    (checkpoint,) = truth.checkpoints(found["id"])
    ((uuid, state, metadata, owner, resources),) = found["checkpoints"]
    assert (uuid, state, owner) == (checkpoint.uuid, "STATE_COMPLETED", trial.id)
    assert metadata["steps_completed"] == 4
    assert "state.json" in resources
    assert found["again"] == found["top"] == found["best"][0] == checkpoint.uuid
    assert len(found["logs"]) == 1
    assert found["id"] in found["mine"]


def test_steering(client: Reference, training: Path, truth: Master) -> None:
    found = client.run(STEERING, str(training / "long.yaml"), str(training))
    assert found["paused"] in ("STATE_PAUSED", "PAUSED")
    assert found["ended"] in ("STATE_CANCELED", "CANCELED")
    assert only_trial(truth, found["id"]).id == found["trial"]
