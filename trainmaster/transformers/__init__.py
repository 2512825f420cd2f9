"""Hugging Face's Trainer in a job of trainmaster: three lines of a script.

    from trainmaster.transformers import TrainmasterCallback, latest_checkpoint

    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[TrainmasterCallback()])
    trainer.train(resume_from_checkpoint=latest_checkpoint())

TRL's trainers are subclasses of Trainer and take the same callback.
"""

from trainmaster.transformers.callback import TrainmasterCallback, latest_checkpoint

__all__ = ["TrainmasterCallback", "latest_checkpoint"]
