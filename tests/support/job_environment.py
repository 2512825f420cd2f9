"""Compares what a training finds of its process with what a bare job of the same scheduler finds."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import Any

from tests.support import trainings
from tests.support.master import ended_as, files, log_text, only_trial
from trainmaster.client.master import Master

PROBE = """
import json, os, re, resource
umask = os.umask(0)
os.umask(umask)
status = open("/proc/self/status").read()
signals = {name: int(re.search(name + r":\\\\s*(\\\\w+)", status)[1], 16) for name in ("SigBlk", "SigIgn", "SigCgt")}
limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
shown = {name: "" if name.startswith("DET_") else value for name, value in os.environ.items()}
print("PROBE " + json.dumps(
    {"umask": umask, "limits": limits, "nice": os.nice(0), "environment": shown, **signals}), flush=True)
""".replace("\\\\", "\\")

# Variables that a training has and a bare job has not, or has with another value; by pattern, with the reason.
OURS: Mapping[str, str] = {
    "DET_*": "what Determined's harness and users' scripts read",
    "TRAINMASTER_DISTRIBUTED_PORT": "where core's collectives meet",
    "TRAINMASTER_RUN_DIR": "where core finds what the runtime wrote down",
    "C10D_PORT": "Determined's name for the port of torch's rendezvous",
    "INTER_TRAIN_PROCESS_COMM_PORT_*": "Determined's names for free ports",
    "DTRAIN_SSH_PORT": "Determined's name for a free port",
    "PYTHONPATH": "`import trainmaster` and `import determined` work in every image",
    "PYTHONUNBUFFERED": "lines of the log arrive when they are printed",
    "NO_PROXY": "the master is reached without a proxy",
    "no_proxy": "the same",
    "TMPDIR": "a private folder that goes with the job",
    "PATH": "job_path of the configuration",
    "SHELL": "the scripts of jobs are bash's",
    "PWD": "the training has a folder of its own",
    "OLDPWD": "a shell's memory",
    "SHLVL": "a shell's count",
    "_": "a shell's memory",
    "LC_CTYPE": "Python's own (PEP 538), where there is no locale",
}
OF_SLURM: Mapping[str, str] = {
    "SLURM_EXPORT_ENV": "an inner srun keeps the environment",
    "SLURM_[!T]*": "numbers, names and sizes of the job; which of them there are depends on what was asked for",
    "SLURM_T[!I]*": "the same",
    "LANG": "a bare job has the locale of its submitter's shell, a training the node's",
    "LC_*": "the same",
    "GLOO_SOCKET_IFNAME": "the interface of the rendezvous",
}
OF_LOCAL: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": "the GPUs of the job's slots"}
SIGUSR2 = 1 << 11  # ignored: the scheduler's warning before the end is for the runtime, and reaches all processes


def probed(text: str) -> dict[str, Any]:
    """Return what the probe printed among other lines."""
    (line,) = (line for line in text.splitlines() if "PROBE {" in line)
    found: dict[str, Any] = json.loads(line.partition("PROBE ")[2])
    return found


def of_training(master: Master, **keys: Any) -> dict[str, Any]:
    """Run the probe as a training."""
    number = master.create_experiment(trainings.experiment(keys=keys), files(train__py=PROBE)).id
    ended_as(master, number, "COMPLETED")
    return probed(log_text(master, only_trial(master, number).id))


def differences(training: Mapping[str, Any], bare: Mapping[str, Any], allowed: Mapping[str, str]) -> dict[str, Any]:
    """Return what differs and is not on the list, as (training's, bare job's)."""
    found = {}
    ours, theirs = training["environment"], bare["environment"]
    for name in sorted({*ours, *theirs}):
        pair = ours.get(name), theirs.get(name)
        if pair[0] != pair[1] and not any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed):
            found[name] = pair
    for name in sorted({*training["limits"], *bare["limits"]}):
        if training["limits"].get(name) != bare["limits"].get(name):
            found[name] = training["limits"].get(name), bare["limits"].get(name)
    for name in ("umask", "nice", "SigBlk", "SigCgt"):
        if training[name] != bare[name]:
            found[name] = training[name], bare[name]
    if training["SigIgn"] & ~SIGUSR2 != bare["SigIgn"] & ~SIGUSR2:
        found["SigIgn"] = training["SigIgn"], bare["SigIgn"]
    return found
