"""`TrainmasterCallback`: turns the events of Keras's `fit` into reports, checkpoints and the way out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Union

import keras
import numpy as np

from trainmaster.core import Context
from trainmaster.core.errors import CheckpointError
from trainmaster.core.session import Session
from trainmaster.keras import random_numbers

_WEIGHTS, _STATE, _REST = "model.weights.h5", "training.json", "variables.npz"


class TrainmasterCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports what Keras logs, saves and restores the training, and leaves when the job must.

    Metrics keep Keras's names: those with `val_` are validation, the others training. A validation comes with `batches`
    and `epochs`, for searches that count these. A training that continues restores weights, optimizer, metrics and
    random numbers, and passes over the batches that its epoch has had. Asked to leave, it saves after the next batch,
    and the process ends with status 0: what follows `fit()` in the script runs only when the training is complete.
    Outside of a job the callback does nothing.

    Args:
        save_freq: When to save: "epoch", a number of batches, or None for nothing but requests to leave.
        report_every: Batches between two reports of training metrics within an epoch; 0 for none.
        context: The script's own context, where it has one. Default: one that this callback opens and closes.

    Raises:
        ValueError: `save_freq` is none of these.
    """

    def __init__(
        self,
        save_freq: Union[str, int, None] = "epoch",
        report_every: int = 100,
        context: Optional[Context] = None,
    ) -> None:
        super().__init__()
        if save_freq is not None and save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError('save_freq must be "epoch", a positive number of batches or None, not %r' % (save_freq,))
        self._save_freq = save_freq
        self._report_every = report_every
        self._session = Session("keras", keras.__version__, context, (3,))
        self._epoch = 0
        self._batch = 0  # batches of this epoch that are done
        self._step = 0  # batches since the start of the trial
        self._saved_at = 0
        self._resumed: Optional[Dict[str, Any]] = None  # what `training.json` said, until its epoch begins
        self._passing_over = False
        self._folder = Path()  # of the checkpoint that was restored

    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Connect, and restore the checkpoint from which this trial continues."""
        if not self._session.active:
            return
        self._session.open()
        folder = self._session.checkpoint()
        if folder is not None:
            self._restore(folder)

    def on_epoch_begin(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Begin the epoch's own random numbers, so that its order of batches can be had again."""
        if not self._session.active:
            return
        self._epoch, self._batch = epoch, 0
        keras.utils.set_random_seed(((self._session.seed or 0) + 7919 * epoch) % 2**31)
        resumed, self._resumed = self._resumed, None
        if resumed is not None and resumed["batch"]:
            self._skip(resumed)

    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Report, save and leave, whatever is due after this batch. Comes once for each execution of several steps."""
        if not self._session.active:
            return
        done = batch + 1 - self._batch
        self._batch = batch + 1
        if self._passing_over:
            return
        before, self._step = self._step, self._step + done
        if self._report_every and before // self._report_every != self._step // self._report_every:
            self._session.report_training(self._step, _numbers(logs))
        self._report_progress()
        if self._is_last():  # of the epoch: what is due after it must not be lost
            return
        if self._session.asked_to_leave():
            self._leave(logs)
        if isinstance(self._save_freq, int) and self._step - self._saved_at >= self._save_freq:
            self._save(logs)

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Report the epoch and its validation; save and leave, whatever is due."""
        if not self._session.active:
            return
        self._epoch, self._batch = epoch + 1, 0
        numbers = _numbers(logs)
        validation = {name: value for name, value in numbers.items() if name.startswith("val_")}
        training = {name: value for name, value in numbers.items() if name not in validation}
        self._session.report_training(self._step, training)
        if validation:
            self._session.report_validation(self._step, {**validation, "batches": self._step, "epochs": epoch + 1})
            self._session.check_searcher_metric()
        self._report_progress()
        last = self.params.get("epochs") == epoch + 1
        if not last and self._session.asked_to_leave():
            self._leave({})
        if self._save_freq == "epoch" or (self._save_freq is not None and last and self._saved_at != self._step):
            self._save({})

    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._session.close()

    def _is_last(self) -> bool:
        steps = self.params.get("steps")
        return steps is not None and self._batch >= steps

    def _report_progress(self) -> None:
        steps, epochs = self.params.get("steps"), self.params.get("epochs") or 0
        self._session.report_progress(self._epoch + (self._batch / steps if steps else 0), epochs)

    def _leave(self, logs: Optional[Mapping[str, Any]]) -> NoReturn:
        self._save(logs)
        self._session.leave()

    def _save(self, logs: Optional[Mapping[str, Any]]) -> None:
        self._saved_at = self._step
        with self._session.store(self._step) as folder, tempfile.TemporaryDirectory() as unused:
            # On TensorFlow several nodes read their variables together; one keeps what it has read.
            self._write(folder if self._session.is_chief else Path(unused), logs)

    def _write(self, folder: Path, logs: Optional[Mapping[str, Any]]) -> None:
        model = self.model  # on JAX, this brings its variables up to date
        model.save_weights(str(folder / _WEIGHTS))
        rest = {"seed%d" % number: each for number, each in enumerate(_seeds(model))}
        rest.update({"metric%d" % number: each for number, each in enumerate(model.metrics_variables)})
        np.savez(str(folder / _REST), **{name: keras.ops.convert_to_numpy(each) for name, each in rest.items()})
        random_numbers.save(folder)
        state = {"epoch": self._epoch, "batch": self._batch, "step": self._step, "logs": _numbers(logs)}
        (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")

    def _restore(self, folder: Path) -> None:
        model = self.model
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        try:
            model.load_weights(str(folder / _WEIGHTS))
            state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                "the checkpoint in %s does not fit the model %r of this script: %s" % (folder, model.name, error)
            ) from error
        self._folder = folder
        self._resumed = state
        self._step = self._saved_at = state["step"]
        model._initial_epoch = state["epoch"]  # where `fit` reads it after this, as for Keras's own BackupAndRestore
        self._assign("seed", _seeds(model))

    def _assign(self, kind: str, variables: Sequence[Any]) -> None:
        """Restore what Keras's file of weights does not hold: the seeds of layers, or the sums of metrics."""
        folder = self._folder
        with np.load(str(folder / _REST)) as stored:
            values = [stored[name] for name in stored.files if name.startswith(kind)]
        if len(values) != len(variables):
            raise CheckpointError(
                "the checkpoint in %s has %d variables of %ss, the model %r of this script %d"
                % (folder, len(values), kind, self.model.name, len(variables))
            )
        for number, variable in enumerate(variables):
            variable.assign(values[number])

    def _skip(self, resumed: Mapping[str, Any]) -> None:
        """Let `fit` draw the batches that this epoch has had, and do nothing with them."""
        model = self.model
        step = model.train_function
        backend = keras.backend.backend()
        logs = dict(resumed["logs"])
        self._passing_over = True

        def pass_over(*arguments: Any) -> Any:
            if self._batch >= resumed["batch"]:
                self._passing_over = False
                model.train_function = step
                self._assign("metric", model.metrics_variables)
                random_numbers.restore(self._folder)
                if backend == "jax":  # the step gets the values of all variables, those of the metrics last
                    metrics = [each.value for each in model.metrics_variables]
                    arguments = ((*arguments[0][:-1], metrics), *arguments[1:])
                return step(*arguments)
            if backend != "torch":  # there the data are drawn before
                for _ in range(model.steps_per_execution):
                    batch = next(arguments[-1])
                model._symbolic_build(data_batch=batch)  # on TensorFlow, the first step would make the metrics
            return (logs, arguments[0]) if backend == "jax" else logs

        model.train_function = pass_over


def _seeds(model: Any) -> List[Any]:
    """Return the states of the layers' random numbers, which are variables and no weights."""
    others = {id(each) for each in [*model.weights, *model.metrics_variables]}
    return [each for each in model.variables if id(each) not in others]


def _numbers(logs: Optional[Mapping[str, Any]]) -> Dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
