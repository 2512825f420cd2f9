"""Lightning's Trainer in a job of trainmaster, for `lightning` and `pytorch_lightning` 2.x: three lines of a script.

from trainmaster.lightning import TrainmasterCallback, latest_checkpoint

trainer = Trainer(max_epochs=10, callbacks=[TrainmasterCallback()])
trainer.fit(model, data, ckpt_path=latest_checkpoint())
"""

from trainmaster.lightning.callback import TrainmasterCallback, latest_checkpoint
from trainmaster.lightning.logger import TrainmasterLogger

__all__ = ["TrainmasterCallback", "TrainmasterLogger", "latest_checkpoint"]
