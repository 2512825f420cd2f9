"""Reports in a job folder of which some cannot be stored: all others count."""

from __future__ import annotations

import json

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, validations, wait_for


def test_unstorable_report_in_spool_loses_only_itself(own_master: MasterProcess) -> None:
    own_master.start()
    master = own_master.client()
    gate = own_master.folder / "gate"
    text = trainings.experiment(epochs=6, wait_at=2, wait_for=str(gate))
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 2 for t in master.trials(number)), "the trial to report")
    own_master.kill()
    gate.touch()
    jobs = own_master.data / "jobs"
    (record,) = wait_for(lambda: list(jobs.glob("**/exit/0.json")), "the job to end by itself", 90)
    spool = record.parent.parent / "spool" / "core.jsonl"
    lines = spool.read_text().splitlines()
    broken = next(i for i, line in enumerate(lines) if '"steps_completed": 5' in line or '"steps_completed":5' in line)
    lines[broken] = json.dumps({"t": 0, "kind": "metrics", "group": "", "steps_completed": 5, "metrics": {"x": 1}})
    spool.write_text("\n".join(lines) + "\n")
    own_master.start()
    master = own_master.client()
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert validations(master, [trial.id])[trial.id] == [1, 2, 3, 4, 5, 6]
    assert "A report was refused for good and left out" in log_text(master, trial.id)
