"""PyTorch in a job of trainmaster: `TrainingState` saves and restores a bare loop.

Imports torch from the image.
"""

from trainmaster.pytorch.state import TrainingState

__all__ = ["TrainingState"]
