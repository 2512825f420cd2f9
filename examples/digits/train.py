"""Trains a multi-layer perceptron on scikit-learn's digits: shows what a training script needs for a search.

It reports after every epoch, saves a checkpoint and exits when it is preempted, and resumes from its latest checkpoint.
"""

import pickle

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from trainmaster import core

EPOCHS = 16
BATCH = 32


def main() -> None:
    info = core.get_cluster_info()
    hparams = info.trial.hparams if info else {"learning_rate": 0.01, "hidden": 32, "momentum": 0.9}
    seed = info.trial.trial_seed if info else 0

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))  # the same split for every trial
    x, y = digits.data[order] / 16.0, digits.target[order]
    (x_train, x_test), (y_train, y_test) = (x[:1437], x[1437:]), (y[:1437], y[1437:])

    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        model, first = restore(context, info), 0
        if model is None:
            model = MLPClassifier(
                hidden_layer_sizes=(hparams["hidden"],),
                solver="sgd",
                learning_rate_init=hparams["learning_rate"],
                momentum=hparams["momentum"],
                batch_size=BATCH,
                random_state=seed % 2**32,
            )
        else:
            first = model.epochs_
        for epoch in range(first + 1, EPOCHS + 1):
            model.partial_fit(x_train, y_train, classes=range(10))
            model.epochs_ = epoch
            steps = epoch * (len(x_train) // BATCH)
            error = 1.0 - model.score(x_test, y_test)
            context.train.report_training_metrics(steps, {"loss": model.loss_, "epochs": epoch})
            context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": epoch})
            context.train.report_progress(epoch / EPOCHS)
            leave = context.preempt.should_preempt()
            if leave or epoch == EPOCHS:
                save(context, model, steps)
            if leave:
                return


def save(context, model, steps: int) -> None:
    with context.checkpoint.store_path({"steps_completed": steps}) as (path, _):
        (path / "model.pkl").write_bytes(pickle.dumps(model))


def restore(context, info):
    if info is None or info.latest_checkpoint is None:
        return None
    with context.checkpoint.restore_path(info.latest_checkpoint) as path:
        return pickle.loads((path / "model.pkl").read_bytes())  # written by this trial itself


if __name__ == "__main__":
    main()
