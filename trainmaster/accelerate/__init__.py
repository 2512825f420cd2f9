"""Hugging Face's Accelerate in a job of trainmaster: a tracker, and the two loops of a training.

from trainmaster.accelerate import TrainmasterTracker

tracker = TrainmasterTracker()
accelerator = Accelerator(log_with=tracker)
...
for epoch in tracker.epochs(accelerator, 10):
    for inputs, targets in tracker.batches(loader):
        ...
"""

from trainmaster.accelerate.tracker import TrainmasterTracker

__all__ = ["TrainmasterTracker"]
