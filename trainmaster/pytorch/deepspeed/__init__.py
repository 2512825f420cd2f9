"""DeepSpeed in a job of trainmaster: `DeepSpeedTrial` and its `Trainer`, with the interface of
`determined.pytorch.deepspeed` 0.38.1.

Imports deepspeed from the image.
"""

from trainmaster.pytorch.deepspeed.context import DeepSpeedTrialContext, overwrite_deepspeed_config
from trainmaster.pytorch.deepspeed.mpu import ModelParallelUnit, make_data_parallel_mpu, make_deepspeed_mpu
from trainmaster.pytorch.deepspeed.trainer import Trainer, init
from trainmaster.pytorch.deepspeed.trial import DeepSpeedTrial

__all__ = [
    "DeepSpeedTrial",
    "DeepSpeedTrialContext",
    "ModelParallelUnit",
    "Trainer",
    "init",
    "make_data_parallel_mpu",
    "make_deepspeed_mpu",
    "overwrite_deepspeed_config",
]
