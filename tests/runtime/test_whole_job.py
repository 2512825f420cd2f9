"""One node, one job, from the lease to the exit record."""

from __future__ import annotations

import base64
import io
import json
import tarfile


def archive(**files: str) -> str:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))
    return base64.b64encode(packed.getvalue()).decode()


SCRIPT = """
import os, sys, json
print("WARNING: careful")
print("[rank=3] from three")
print("10%\\r50%\\r100%")
print("to stderr", file=sys.stderr)
print(json.dumps({k: v for k, v in os.environ.items() if k.startswith("DET_")}))
print(os.environ["GREETING"])
print(sorted(os.listdir(os.environ["DET_RUN_DIR"] + "/info")))
"""


def test_a_job_runs_its_entrypoint_and_reports_everything(stage):
    job, master = stage("python3 train.py --lr 0.1", context=archive(**{"train.py": SCRIPT}))
    status, output = job.run()
    assert status == 0, output
    lines = master.lines()
    assert "hello 'you' \"there\" A=b=c" in lines
    assert {"line": "from three", "rank": 3, "stdtype": "stdout", "level": "INFO"}.items() <= next(
        record for record in master.streams["log-0"] if record.get("line") == "from three"
    ).items()
    assert next(r for r in master.streams["log-0"] if r.get("line") == "WARNING: careful")["level"] == "WARNING"
    assert next(r for r in master.streams["log-0"] if r.get("line") == "to stderr")["stdtype"] == "stderr"
    assert "100%" in lines
    told = next(json.loads(line) for line in lines if line.startswith("{"))
    assert told["DET_TRIAL_ID"] == "7"
    assert told["DET_SLOT_IDS"] == "[0, 1]"
    assert json.loads(told["DET_HPARAMS"]) == {"lr": 0.1, "layers": [1, 2]}
    assert told["DET_MASTER"] == master.url
    assert {"DET_MASTER", "DET_CLUSTER_ID", "DET_AGENT_ID", "DET_SLOT_IDS", "DET_TASK_ID", "DET_ALLOCATION_ID"} <= set(
        told
    )
    assert master.leases == [
        {
            "job_id": "101",
            "node_rank": 0,
            "num_nodes": 1,
            "node_name": "n0",
            "slot_ids": [0, 1],
            "restart_count": 0,
            "addresses": ["127.0.0.1"],
        }
    ]
    record = job.exit_record()
    assert record == master.exits[0]
    assert record["exit_code"] == 0
    assert record["signal"] is None
    assert record["preempted"] is None
    assert record["spool"]["log-0"] == len(job.spool("log-0")) == len(master.streams["log-0"])
    assert (job.folder / "spool" / "log-0.acked").read_text() == f"{record['spool']['log-0']}\n"
