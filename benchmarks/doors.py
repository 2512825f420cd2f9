"""Measures what the doors for frameworks cost a training: time inside our calls, measured inside, and their imports."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks.measure import Deadline, Sample, Unavailable, figure, say
from tests.process.runtime.test_whole_job import archive
from tests.support.runtime.jobs import StagedJob, make_work
from tests.support.runtime.master import FakeMaster

PYTHON = Path(os.environ.get("TRAINMASTER_TORCH_PYTHON", "/var/cache/trainmaster/torch-venv/bin/python"))
TURNS = 5
# Every call of ours is timed, whoever makes it: those of the callbacks, and what the loaders do.
INSIDE = """
import functools, os, time

spent = 0.0
_depth = 0

def timed(function):
    @functools.wraps(function)
    def call(*arguments, **named):
        global spent, _depth
        _depth += 1
        begun = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            _depth -= 1
            if _depth == 0:
                spent += time.perf_counter() - begun
    return call

def time_class(cls, names):
    for name in names:
        if name in vars(cls):
            setattr(cls, name, timed(vars(cls)[name]))

def time_data():
    from trainmaster.pytorch import data
    for name in ("_states", "_set_states", "_seed", "_swapped"):
        setattr(data, name, timed(getattr(data, name)))

class Clock:
    # From the end of the second step on: the first ones import and compile.
    def __init__(self):
        self.steps = 0
    def step(self):
        global spent
        time.sleep(0.02)
        self.steps += 1
        if self.steps == 20:
            spent, self.begun = 0.0, time.perf_counter()
        if self.steps == 320:
            print("INSIDE", 100 * spent / (time.perf_counter() - self.begun), flush=True)
            os._exit(0)  # the training is a hundred times as long: it reports each percent of its progress
clock = Clock()
"""
_DATA = """
import torch
from inside import clock, time_class, time_data
x = torch.randn(140_000, 4)
data = torch.utils.data.TensorDataset(x, x.sum(1))
time_data()
"""
LOOPS = {
    "transformers": _DATA
    + """
from transformers import Trainer, TrainingArguments
from trainmaster.transformers import TrainmasterCallback
time_class(TrainmasterCallback, [name for name in vars(TrainmasterCallback) if name.startswith("on_")])
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        clock.step()
        return {"loss": ((self.net(x)[:, 0] - labels) ** 2).mean()}
class Named(torch.utils.data.Dataset):
    def __len__(self):
        return len(x)
    def __getitem__(self, index):
        return {"x": data[index][0], "labels": data[index][1]}
Trainer(Model(), TrainingArguments(output_dir="out", max_steps=33_000, per_device_train_batch_size=4, logging_steps=10,
        save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True), train_dataset=Named(),
        callbacks=[TrainmasterCallback()]).train()
""",
    "lightning": _DATA
    + """
import lightning as L
from trainmaster.lightning import TrainmasterCallback, TrainmasterLogger
time_class(TrainmasterCallback, ("on_train_batch_start", "on_train_batch_end", "on_train_epoch_start"))
time_class(TrainmasterLogger, ("log_metrics",))
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        clock.step()
        loss = ((self.net(batch[0])[:, 0] - batch[1]) ** 2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
L.Trainer(max_steps=33_000, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
          log_every_n_steps=10, callbacks=[TrainmasterCallback()]).fit(
    Module(), torch.utils.data.DataLoader(data, batch_size=4, shuffle=True))
""",
    "keras": """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
from inside import clock, time_class
from trainmaster.keras import TrainmasterCallback
time_class(TrainmasterCallback, [name for name in vars(TrainmasterCallback) if name.startswith("on_")])
class Step(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        clock.step()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.normal(size=(140_000, 4)).astype("float32")
model.fit(x, x.sum(1), batch_size=4, epochs=1, verbose=0,
          callbacks=[Step(), TrainmasterCallback(save_freq=None, report_every=10)])
""",
    "accelerate": _DATA
    + """
from accelerate import Accelerator
from trainmaster.accelerate import TrainmasterTracker
from trainmaster.core.session import Session
time_class(TrainmasterTracker, ("log",))
time_class(Session, ("asked_to_leave", "report_progress"))
tracker = TrainmasterTracker()
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("bench")
net = torch.nn.Linear(4, 1)
net, optimizer, loader = accelerator.prepare(
    net, torch.optim.SGD(net.parameters(), lr=0.01), torch.utils.data.DataLoader(data, batch_size=4, shuffle=True))
for epoch in tracker.epochs(accelerator, 1):
    for number, (a, b) in enumerate(tracker.batches(loader)):
        clock.step()
        optimizer.zero_grad()
        loss = ((net(a)[:, 0] - b) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        if number % 10 == 9:
            accelerator.log({"loss": loss.item()})
""",
    "pytorch": _DATA
    + """
from trainmaster import core
from trainmaster.core.preempt import PreemptContext
from trainmaster.core.train import TrainContext
from trainmaster.pytorch import TrainingState
time_class(PreemptContext, ("should_preempt",))
time_class(TrainContext, ("report_training_metrics",))
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
state = TrainingState(loader=loader, model=net, optimizer=optimizer)
with core.init() as context:
    state.restore(context)
    for epoch in state.epochs(1):
        for a, b in state.batches():
            clock.step()
            optimizer.zero_grad()
            loss = ((net(a)[:, 0] - b) ** 2).mean()
            loss.backward()
            optimizer.step()
            state.steps += 1
            if state.steps % 10 == 0:
                context.train.report_training_metrics(state.steps, {"loss": loss.item()})
            context.preempt.should_preempt()
""",
}
# The framework as the door finds it, and the door.
IMPORTS = {
    "transformers": ("from transformers import Trainer, TrainerCallback", "trainmaster.transformers"),
    "lightning": ("import lightning.pytorch", "trainmaster.lightning"),
    "keras": ("import os; os.environ['KERAS_BACKEND'] = 'jax'; import keras", "trainmaster.keras"),
    "accelerate": ("import accelerate.tracking, accelerate", "trainmaster.accelerate"),
    "pytorch": ("import numpy, torch.nn.parallel, torch.utils.data", "trainmaster.pytorch"),
}


def run(deadline: Deadline) -> None:
    """Each door in turns, in a real job whose master only listens."""
    if not PYTHON.exists():
        raise Unavailable(f"{PYTHON} is not there: `bash scripts/test` makes it, or set TRAINMASTER_TORCH_PYTHON")
    inside: dict[str, list[float]] = {name: [] for name in LOOPS}
    imports: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(TURNS):
        for name in LOOPS:
            inside[name].append(_loop(name))
            imports[name].append(_import(name))
        if deadline.left < 60:
            break
    for name in LOOPS:
        say(
            "doors",
            f"{name}: of a loop of 20 ms steps that reports every ten, inside our calls",
            Sample(inside[name], "%"),
            "1 % is wanted",
        )
    for name in IMPORTS:
        say(
            "doors",
            f"{name}: importing the door beside the framework",
            f"{figure(statistics.median(imports[name]))} ms",
            "60 ms is wanted",
        )


def _loop(name: str) -> float:
    """Percent of the loop's time."""
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        store = Path(folder) / "store"
        store.mkdir()
        work = make_work([str(PYTHON), "train.py"])
        work["checkpoint_storage"] = {"type": "shared_fs", "host_path": str(store)}
        work["environment"] = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        master = FakeMaster(work, archive(**{"train.py": LOOPS[name], "inside.py": INSIDE}))  # type: ignore[arg-type]
        job = StagedJob(Path(folder) / "job", master)
        try:
            status, output = job.run(120)
            lines = [line for stream in master.streams for line in master.lines(stream)]
            found = [float(line.split()[1]) for line in lines if line.startswith("INSIDE ")]
            if status or not found:
                raise RuntimeError(f"the loop of {name} ended with {status}:\n{output}\n" + "\n".join(lines))
            return found[0]
        finally:
            job.clean_up()
            master.close()


def _import(name: str) -> float:
    """Milliseconds."""
    before, door = IMPORTS[name]
    program = f"{before}\nimport time\nbegun = time.perf_counter()\nimport {door}\nprint(time.perf_counter() - begun)"
    root = Path(__file__).resolve().parents[1]
    environment = {"PYTHONPATH": str(root), "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run([str(PYTHON), "-c", program], env=environment, capture_output=True, text=True, check=True)
    return 1000 * float(json.loads(done.stdout.split()[-1]))
