"""Hugging Face's Trainer with our callback, in real jobs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.frameworks.conftest import EARLIER_RELEASES, earlier
from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained
from tests.support.runtime.trials import LEAVE

ROOT = Path(__file__).resolve().parents[3]
PYTHON = find_python("transformers", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with the frameworks and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with transformers: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

# 40 items in batches of 4, two of them a step: five steps an epoch, 15 in all.
SCRIPT = """
import json, os, random
import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from trainmaster import core
from trainmaster.transformers import TrainmasterCallback, latest_checkpoint
import leave

class Data(torch.utils.data.Dataset):
    # Augmented with random numbers of each kind: a batch made twice would differ.
    def __init__(self, size):
        self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1))
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        noise = torch.randn(4) + float(np.random.rand()) + random.random()
        return {"x": self.x[index] + 0.1 * noise, "labels": self.x[index].sum()}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    def forward(self, x, labels):
        y = self.net(x)[:, 0]
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

class Leave(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        leave.at(state.global_step + 1)
    def on_prediction_step(self, args, state, control, **more):
        leave.at(state.global_step, "evaluation")
    def on_save(self, args, state, control, **more):
        leave.at(state.global_step, "save")

args = core.apply_hparams(TrainingArguments(
    **{
        **dict(output_dir="out", num_train_epochs=1, per_device_train_batch_size=4, logging_steps=2,
               gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4, save_strategy="no", report_to=[],
               dataloader_num_workers=2, use_cpu=True, disable_tqdm=True, lr_scheduler_type="cosine"),
        **json.loads(os.environ.get("ARGUMENTS", "{}")),
    }
))
print("ARGUMENTS", args.learning_rate, args.num_train_epochs, args.seed)
set_seed(args.seed)
trainer = Trainer(
    model=Model(), args=args, train_dataset=Data(40), eval_dataset=Data(8), callbacks=[Leave(), TrainmasterCallback()]
)
trainer.train(resume_from_checkpoint=latest_checkpoint())
print("BEST", trainer.state.best_metric, trainer.state.best_model_checkpoint)
leave.digest(p.detach().numpy() for p in trainer.model.parameters())
"""
HPARAMS = {"learning_rate": "1e-2", "num_train_epochs": 3.0, "unknown": 1}


@pytest.fixture
def trainer(trial: Any) -> Any:
    """`trainer(arguments of Trainer, **more)`: a trial of SCRIPT."""

    def make(arguments: str = "{}", environment: Any = None, **more: Any) -> Any:
        environment = {"ARGUMENTS": arguments, **(environment or {})}
        return trial(SCRIPT, **{"python": PYTHON, "hparams": HPARAMS, "environment": environment, **more})

    return make


def test_a_trial_that_was_cut_in_four_ends_with_the_same_weights(trainer: Any) -> None:
    whole = trainer()
    alone = whole.through()
    cut = trainer()
    # In the middle of an epoch and of an interval of logging; in an evaluation; killed.
    last = cut.through("ask step 3", "ask evaluation 8", "kill step 12")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert alone.printed("ARGUMENTS") == ["0.01 3 42"]
    trained(cut, "trainmaster.transformers", "transformers", "torch")

    assert [step for step, _ in whole.metrics("training")] == [2, 4, 6, 8, 10, 12, 14]
    assert set(whole.metrics("training")[0][1]) == {"loss", "grad_norm", "learning_rate", "epoch"}
    assert [step for step, _ in whole.metrics("validation")] == [4, 8, 12, 15]
    expected = {"batches": 4, "epochs": 0.8}
    assert whole.metrics("validation")[0][1].items() >= expected.items()
    assert [step for step, metrics in whole.metrics("summary") if "train_runtime" in metrics] == [15]
    assert [record["progress"] for record in alone.master.kinds("progress")][-1] == 1.0

    # The job that left in between reports what it had not logged yet; the one that was killed repeats its steps.
    assert [[step for step, _ in each.metrics("training")] for each in cut.attempts] == [
        [2, 3],
        [4, 6, 8],
        [10],
        [10, 12, 14],
    ]
    losses = [{step: metrics["eval_loss"] for step, metrics in each.metrics("validation")} for each in (whole, cut)]
    assert losses[0] == losses[1]
    (stored,) = cut.attempts[0].checkpoints
    assert stored["steps_completed"] == 3
    assert stored["metadata"]["framework"] == "transformers"
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= set(
        stored["resources"]
    )
    # Asked to leave in an evaluation, it ended the evaluation first.
    assert [step for step, _ in cut.attempts[1].metrics("validation")] == [4, 8]


@earlier
def test_the_release_before_ends_with_the_same_weights(trainer: Any) -> None:
    whole, cut = trainer(environment=EARLIER_RELEASES), trainer(environment=EARLIER_RELEASES)
    alone, last = whole.through(), cut.through("ask step 7")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    # It does not evaluate once more at its end.
    assert [[step for step, _ in each.metrics("validation")] for each in cut.attempts] == [[4], [8, 12]]
    trained(cut, "trainmaster.transformers", "transformers", "torch")


SAVING = {
    "save_strategy": "steps",
    "save_steps": 4,
    "save_total_limit": 1,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "greater_is_better": True,  # the loss of this model falls, so that the first checkpoint remains the best one
}


def test_the_best_checkpoint_outlives_rotation_and_the_jobs_that_wrote_it(trainer: Any) -> None:
    whole = trainer(json.dumps(SAVING)).through()
    cut = trainer(json.dumps(SAVING))
    # Killed between two checkpoints, and when Trainer had written one that was not stored yet.
    last = cut.through("kill step 6", "kill save 12", "ask step 14")
    assert last.printed("WEIGHTS") == whole.printed("WEIGHTS") != []
    ((value, path),) = [line.split() for line in whole.printed("BEST")]
    ((same, moved),) = [line.split() for line in last.printed("BEST")]
    assert value == same
    assert path.endswith("out/checkpoint-4")
    assert cut.attempts[0].checkpoints[0]["uuid"] in moved
    assert [[made["steps_completed"] for made in each.checkpoints] for each in cut.attempts] == [
        [4],
        [8],
        [12, 14],
        [15],
    ]
    assert [each.metrics("validation")[0][0] for each in cut.attempts] == [4, 8, 12, 15]


def test_evaluations_between_epochs_are_neither_lost_nor_made_in_haste(trainer: Any) -> None:
    """Trainer takes a training that leaves for one that ends its epoch."""
    arguments = json.dumps({"eval_strategy": "epoch", "save_strategy": "epoch"})
    whole, cut = trainer(arguments), trainer(arguments)
    alone, last = whole.through(), cut.through("ask step 3", "ask step 10")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert [[step for step, _ in each.metrics("validation")] for each in cut.attempts] == [[], [5, 10], [15]]
    losses = [{step: metrics["eval_loss"] for step, metrics in each.metrics("validation")} for each in (whole, cut)]
    assert losses[0] == losses[1]


def test_a_run_that_ends_at_the_step_at_which_it_is_asked_to_leave_is_complete(trainer: Any) -> None:
    attempt = trainer().run("ask step 15")
    assert attempt.status == 0, attempt.output
    assert attempt.printed("WEIGHTS")
    assert not attempt.left


def test_two_nodes_that_each_save_go_on_with_the_same_weights(trainer: Any) -> None:
    arguments = json.dumps({"save_on_each_node": True, "gradient_accumulation_steps": 1})
    whole = trainer(arguments, nodes=2).through()
    cut = trainer(arguments, nodes=2)
    last = cut.through("ask step 7")
    assert last.printed("WEIGHTS") == whole.printed("WEIGHTS")
    assert len(set(last.printed("WEIGHTS"))) == 1
    assert [step for step, _ in cut.metrics("validation")] == [4, 8, 12, 15]  # one report each
    (stored,) = cut.attempts[0].checkpoints
    assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors"} <= set(stored["resources"])
    trained(cut, "trainmaster.transformers", "transformers", "torch")


def test_the_search_stops_a_trial_after_its_validation(trainer: Any) -> None:
    def decide(master: Any, stream: str, record: Any) -> None:
        if record.get("kind") == "metrics" and record["group"] == "validation" and record["steps_completed"] == 8:
            master.preempt = "early stop"

    trial = trainer()
    attempt = trial.run(decide=decide)
    assert attempt.status == 0, attempt.output
    assert attempt.left
    assert [made["steps_completed"] for made in attempt.checkpoints] == [8]
    assert not attempt.printed("WEIGHTS")


def test_a_metric_that_the_search_waits_for_in_vain_is_named_beside_the_others(trainer: Any) -> None:
    attempt = trainer(searcher={"name": "random", "metric": "eval_accuracy"}).run()
    assert attempt.status == 1
    (sentence,) = [line for line in attempt.lines if line.startswith("ValueError: ")]
    assert "the searcher waits for the metric 'eval_accuracy', which transformers does not report" in sentence
    assert "eval_loss" in sentence
    assert [step for step, _ in attempt.metrics("validation")] == [4]


def test_outside_of_a_job_the_same_script_trains_and_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "leave.py").write_text(LEAVE)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [PYTHON, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "ARGUMENTS 5e-05 1 42" in ran.stdout
    assert "WEIGHTS" in ran.stdout
    assert {path.name for path in tmp_path.iterdir()} <= {"train.py", "leave.py", "out", "__pycache__", ".cache"}


TRL = """
import warnings
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback, set_seed
from trl import SFTConfig, SFTTrainer
from trainmaster.core import apply_hparams
from trainmaster.transformers import TrainmasterCallback, latest_checkpoint
import leave

class Leave(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        leave.at(state.global_step + 1)

words = "the cat sat on a mat and dog ran".split()
vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", *words])}
tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
tokenizer.pre_tokenizer = Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
args = apply_hparams(SFTConfig(
    output_dir="out", num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1, save_strategy="no",
    report_to=[], use_cpu=True, disable_tqdm=True, max_length=8,
))
set_seed(args.seed)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=len(vocabulary), n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
))
texts = [" ".join(words[at % 5 : at % 5 + 4]) for at in range(24)]
trainer = SFTTrainer(
    model=model, args=args, train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokenizer,
    callbacks=[Leave(), TrainmasterCallback()],
)
trainer.train(resume_from_checkpoint=latest_checkpoint())
leave.digest(p.detach().numpy() for p in trainer.model.parameters())
"""


@pytest.mark.skipif(
    find_python("trl", "TRAINMASTER_TORCH_PYTHON", "torch-venv") is None,
    reason="no Python with trl: set TRAINMASTER_TORCH_PYTHON",
)
def test_a_trainer_of_trl_goes_on_with_the_same_weights(trial: Any) -> None:
    """24 texts in batches of 4: six steps an epoch."""
    hparams = {"learning_rate": "1e-2"}
    whole, cut = trial(TRL, python=PYTHON, hparams=hparams), trial(TRL, python=PYTHON, hparams=hparams)
    alone, last = whole.through(), cut.through("ask step 9")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    losses = [{step: metrics["loss"] for step, metrics in each.metrics("training")} for each in (whole, cut)]
    assert losses[0] == losses[1]
    assert list(losses[0]) == list(range(1, 13))
    trained(cut, "trainmaster.transformers", "trl", "transformers")


def test_determineds_own_callback_reports_leaves_and_goes_on(trial: Any) -> None:
    """`determined.transformers.DetCallback`, as scripts of Determined's users have it."""
    script = SCRIPT.replace(
        "from trainmaster.transformers import TrainmasterCallback, latest_checkpoint",
        "import determined as det\nfrom determined.transformers import DetCallback",
    )
    start = script.index("trainer = Trainer(")
    script = script[:start] + (
        """
with det.core.init() as core_context:
    callback = DetCallback(core_context, args, user_data={"mine": 1})
    trainer = Trainer(
        model=Model(), args=args, train_dataset=Data(40), eval_dataset=Data(8), callbacks=[Leave(), callback]
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
print("AT", trainer.state.global_step)
"""
    )
    cut = trial(script, python=PYTHON, hparams=HPARAMS)
    first = cut.run("ask step 3")
    assert (first.status, first.left) == (0, True), first.output
    assert first.printed("AT") == ["4"]  # it is asked when it logs
    (stored,) = first.checkpoints
    assert {"checkpoint-4/trainer_state.json", "checkpoint-4/my_data.json"} <= set(stored["resources"])
    last = cut.run()
    assert last.status == 0, last.output
    assert last.printed("AT") == ["15"]
    assert [step for step, _ in cut.metrics("validation")] == [4, 8, 12, 15]
    assert set(cut.metrics("validation")[0][1]) == {"eval_loss", "batches", "epochs"}
    assert [made["steps_completed"] for made in last.checkpoints] == [15]
    wrong = trial(script, python=PYTHON, hparams=HPARAMS, searcher={"name": "single", "metric": "accuracy"}).run()
    assert wrong.status == 1
    assert "the searcher waits for the metric 'accuracy', which Trainer does not report" in wrong.output
