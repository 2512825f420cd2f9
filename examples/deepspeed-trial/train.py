"""Trains the trial class, in a job and outside of one."""

from model_def import DigitsTrial

from trainmaster import core, pytorch
from trainmaster.pytorch import deepspeed

DEFAULTS = {"learning_rate": 0.002, "hidden": 64, "epochs": 6}


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    with deepspeed.init(hparams=hparams) as context:
        deepspeed.Trainer(DigitsTrial(context), context).fit(
            max_length=pytorch.Epoch(hparams["epochs"]),
            validation_period=pytorch.Epoch(1),
            reporting_period=pytorch.Epoch(1),
            checkpoint_policy="none",
            latest_checkpoint=info.latest_checkpoint if info else None,
        )


if __name__ == "__main__":
    main()
