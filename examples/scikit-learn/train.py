"""Boosted trees of scikit-learn on its breast cancer data, grown ten at a time."""

import pickle

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

from trainmaster import core

DEFAULTS = {"learning_rate": 0.1, "max_depth": 3, "subsample": 0.8, "trees": 60}
MORE = 10  # trees between two reports


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = dict(info.trial.hparams if info else DEFAULTS)
    total = hparams.pop("trees")
    seed = info.trial.trial_seed % 2**32 if info else 0
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=0)  # the same for all trials

    with core.init() as context:
        model = GradientBoostingClassifier(n_estimators=0, warm_start=True, random_state=seed, **hparams)
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                model = pickle.loads((path / "model.pkl").read_bytes())  # written by this trial itself

        for trees in range(model.n_estimators + MORE, total + 1, MORE):
            model.set_params(n_estimators=trees).fit(x_train, y_train)
            error = 1.0 - model.score(x_test, y_test)
            context.train.report_training_metrics(trees, {"loss": model.train_score_[-1]})
            context.train.report_validation_metrics(trees, {"validation_error": error})
            context.train.report_progress(trees / total)
            print(f"{trees} trees: validation error {error:.3f}", flush=True)

            leave = context.preempt.should_preempt()
            if leave or trees == total:
                with context.checkpoint.store_path({"steps_completed": trees}) as (path, _):
                    (path / "model.pkl").write_bytes(pickle.dumps(model))
            if leave:
                return


if __name__ == "__main__":
    main()
