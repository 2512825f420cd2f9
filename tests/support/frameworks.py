"""Trains with each framework in jobs of each cluster, and records the results.

`docs/frameworks.md` has a table made from the record (`scripts/generate`). A training that ran
is compared with it; where something has changed, TRAINMASTER_RECORD=1 in the environment writes it anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.master import files, log_text, only_trial
from trainmaster.client.context import collect
from trainmaster.client.master import Master

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LENGTHS = (
    "epochs",
    "max_epochs",
    "num_train_epochs",
    "rounds",
    "trees",
)  # hyperparameters of the examples: when they end
LONG = 1_000_000
RECORD = ROOT / "tests" / "data" / "frameworks.json"


@dataclass(frozen=True)
class Training:
    """What is trained: an example, or the sum over all workers of a script of SUMS. `package`: whose version counts;
    its name as the registry has it. `image`: of tests/support/cluster/images.py. `door`: it leaves after any step, not
    after validations only. `steps`: of the whole training, where it does not report how many workers it has: they share
    the steps of one."""

    framework: str
    package: str
    name: str
    image: str
    launcher: str
    nodes: int = 2
    workers: int = 4
    door: bool = False
    steps: int = 0

    def __str__(self) -> str:
        return self.name


# Each is an experiment as people would create it. Those of one node are a search.
OF_EXAMPLES = (
    Training("PyTorch", "torch", "digits-ddp", "torch", "torchrun"),
    Training("PyTorch", "torch", "pytorch", "torch", "", nodes=1, workers=1),
    Training("PyTorch (PyTorchTrial)", "torch", "pytorch-trial", "torch", "torchrun"),
    Training("PyTorch (FSDP2)", "torch", "fsdp2", "torch", "torchrun", door=True),
    Training("Accelerate", "accelerate", "accelerate", "frameworks", "torchrun", door=True),
    Training("DeepSpeed", "deepspeed", "deepspeed", "frameworks", "deepspeed"),
    Training("DeepSpeed (DeepSpeedTrial)", "deepspeed", "deepspeed-trial", "frameworks", "deepspeed"),
    Training("Transformers", "transformers", "transformers", "frameworks", "torchrun", door=True, steps=4 * 23),
    Training("Lightning", "lightning", "lightning", "frameworks", "torchrun", door=True, steps=4 * 23),
    Training("Keras (JAX)", "keras", "keras", "frameworks", "script", door=True, steps=4 * 23),
    Training("Horovod (Keras)", "horovod", "horovod", "horovod", "horovod"),
    Training("JAX", "jax", "jax", "frameworks", "script"),
    Training("TensorFlow", "tensorflow-cpu", "tensorflow", "horovod", "script", workers=2),
    Training("MPI (mpi4py, MPICH)", "mpi4py", "mpi", "frameworks", "script"),
    Training("scikit-learn", "scikit-learn", "scikit-learn", "frameworks", "", nodes=1, workers=1),
    Training("scikit-learn", "scikit-learn", "digits", "frameworks", "", nodes=1, workers=1),
    Training("XGBoost", "xgboost-cpu", "xgboost", "frameworks", "", nodes=1, workers=1),
)
OF_SUMS = (
    Training("PyTorch", "torch", "torch", "torch", "torchrun"),
    Training("DeepSpeed", "deepspeed", "deepspeed", "frameworks", "deepspeed"),
    Training("Horovod (TensorFlow)", "horovod", "horovod", "horovod", "horovod"),
)
ON_DOCKER = tuple(training for training in OF_SUMS if training.name in ("torch", "horovod"))
# The sum over all ranks of rank + 1, reported by the chief: it is right only if every rank took part.
_REPORT = """
from trainmaster import core
with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    context.train.report_validation_metrics(1, {"total": total, "workers": size, "nodes": distributed.cross_size})
"""
SUMS = {
    "torch": """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
value = torch.tensor([rank + 1.0])
dist.all_reduce(value)
total = value.item()
from trainmaster import core
distributed = core.DistributedContext.from_torch_distributed()
"""
    + _REPORT
    + "dist.destroy_process_group()\n",
    "deepspeed": """
import deepspeed, torch
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would need a compiler
deepspeed.init_distributed(dist_backend="gloo")
rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
value = torch.tensor([rank + 1.0])
deepspeed.comm.all_reduce(value)
total = value.item()
from trainmaster import core
distributed = core.DistributedContext.from_deepspeed()
"""
    + _REPORT
    + "deepspeed.comm.destroy_process_group()\n",
    "horovod": """
import horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
rank, size = hvd.rank(), hvd.size()
total = float(hvd.allreduce(tf.constant(rank + 1.0), op=hvd.Sum))
from trainmaster import core
distributed = core.DistributedContext.from_horovod(hvd)
"""
    + _REPORT,
}
# Read by the job's shell on each node, before the training: says what the image has.
HOOK = """%s -c 'import importlib.metadata as m, os
kind = "Apptainer" if "APPTAINER_CONTAINER" in os.environ else "Docker" if os.path.exists("/.dockerenv") else "none"
print("IMAGE HAS", m.version("%s"), "IN", kind, flush=True)'
"""


def image_of(training: Training, request: pytest.FixtureRequest) -> str:
    """Its path; the fixtures of tests/support/cluster/slurm.py have to be in the test's module."""
    path: Path = request.getfixturevalue(f"{training.image}_image")
    return str(path)


def begin_example(master: Master, training: Training, image: str) -> int:
    """Create the experiment of an example, with nothing changed but the image. Its id."""
    return _begin(master, training, image, lambda text: text)


def begin_endless(master: Master, training: Training, image: str) -> int:
    """Create an experiment of one trial of an example that trains until it is told to leave: where it is for several
    workers with one on each of two nodes, because most of its time is that of their imports. Its id."""

    def change(text: str) -> str:
        config = yaml.safe_load(text)
        hparams = {name: _any_of(value) for name, value in config["hyperparameters"].items()}
        hparams |= {name: LONG for name in LENGTHS if name in hparams}
        searcher = {"name": "single", "metric": config["searcher"]["metric"]}
        if training.nodes > 1:
            config |= {"resources": {"slots_per_trial": 2}, "slurm": {"slots_per_node": 1}}
        return yaml.safe_dump({**config, "hyperparameters": hparams, "searcher": searcher})

    return _begin(master, training, image, change)


def _any_of(hparam: Any) -> Any:
    if not isinstance(hparam, dict):
        return hparam
    return hparam["vals"][0] if "vals" in hparam else hparam["maxval"] if hparam["type"] != "log" else 0.1


def _begin(master: Master, training: Training, image: str, change: Callable[[str], str]) -> int:
    folder = EXAMPLES / training.name
    (config,) = folder.glob("*.yaml")
    text = change(config.read_text()).replace("environment:", f"environment:\n  image: {image}")
    return master.create_experiment(text, [*collect(folder), *_hook(training)]).id


def begin_sum(master: Master, training: Training, keys: dict[str, Any], python: str = "python3") -> int:
    """Create the experiment of a script of SUMS; `keys`: of its file, the image among them. Its id."""
    config = {
        "name": f"sum-{training.name}",
        "entrypoint": f"{python} -m trainmaster.launchers.{training.launcher} train.py",
        "searcher": {"name": "single", "metric": "total"},
        "max_restarts": 0,
        **keys,
    }
    sent = [*files(train__py=SUMS[training.name]), *_hook(training, python)]
    return master.create_experiment(json.dumps(config), sent).id


def _hook(training: Training, python: str = "python3") -> list[dict[str, Any]]:
    (entry,) = files(hook=HOOK % (python, training.package))
    return [{**entry, "path": "startup-hook.sh"}]


def check_sum(master: Master, number: int, workers: int = 4) -> None:
    """The chief reported what all workers, on two nodes, summed up."""
    metrics = only_trial(master, number).summary["validation_metrics"]
    assert {name: metrics[name]["last"] for name in ("total", "workers", "nodes")} == {
        "total": sum(range(1, workers + 1)),
        "workers": workers,
        "nodes": 2,
    }


def check_record(master: Master, number: int, training: Training, *, scheduler: str, sums: bool) -> None:
    """What ran is what the record has; or the record is made so, when TRAINMASTER_RECORD is set."""
    trial = master.trials(number)[0]
    text = log_text(master, trial.id)
    said = set(re.findall(r"IMAGE HAS (\S+) IN (\w+)", text))
    assert len(said) == 1, text
    ((version, container),) = said
    row = {
        **{
            name: value
            for name, value in asdict(training).items()
            if name not in ("package", "image", "name", "door", "steps")
        },
        "version": version.partition("+")[0],
        "container": container,
        "scheduler": scheduler,
        "what": "sum" if sums else f"examples/{training.name}",
    }
    with RECORD.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = json.load(file)
        if os.environ.get("TRAINMASTER_RECORD"):
            same = ("framework", "scheduler", "container", "what")
            rows = [one for one in rows if any(one[name] != row[name] for name in same)] + [row]
            file.seek(0)
            json.dump(sorted(rows, key=lambda one: json.dumps(one)), file, indent=1)
            file.write("\n")
            file.truncate()
    assert row in rows, f"{row} is not in {RECORD}: run with TRAINMASTER_RECORD=1, then `scripts/generate`"
