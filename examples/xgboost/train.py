"""XGBoost on scikit-learn's breast cancer data: a callback reports each round, and saves the model at a preemption."""

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from trainmaster import core

DEFAULTS = {"max_depth": 3, "eta": 0.1, "rounds": 30}


class Reporter(xgboost.callback.TrainingCallback):
    """Reports after each round, and saves the model when the training ends or is preempted."""

    def __init__(self, context: core.Context, rounds: int) -> None:
        super().__init__()
        self.context, self.rounds = context, rounds

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: dict) -> bool:
        """Return whether to end the training. `epoch` starts at 0 again in a resumed training."""
        done = model.num_boosted_rounds()
        last = {name: values[-1] for name, values in evals_log["test"].items()}
        self.context.train.report_training_metrics(done, {"loss": evals_log["train"]["logloss"][-1]})
        self.context.train.report_validation_metrics(done, {"validation_error": last["error"], **last})
        self.context.train.report_progress(done / self.rounds)
        leave = self.context.preempt.should_preempt()
        if leave or done == self.rounds:
            print(f"{done} rounds: validation error {last['error']:.3f}", flush=True)
            with self.context.checkpoint.store_path({"steps_completed": done}) as (path, _):
                model.save_model(path / "model.json")
        return leave


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = dict(info.trial.hparams if info else DEFAULTS)
    rounds = hparams.pop("rounds")
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=0)  # the same for all trials
    data, tests = xgboost.DMatrix(x_train, y_train), xgboost.DMatrix(x_test, y_test)

    with core.init() as context:
        model, done = None, 0
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                model = xgboost.Booster(model_file=path / "model.json")
            done = model.num_boosted_rounds()
        xgboost.train(
            {**hparams, "objective": "binary:logistic", "eval_metric": ["logloss", "error"], "nthread": 1},
            data,
            num_boost_round=rounds - done,
            evals=[(data, "train"), (tests, "test")],
            verbose_eval=False,
            xgb_model=model,
            callbacks=[Reporter(context, rounds)],
        )


if __name__ == "__main__":
    main()
