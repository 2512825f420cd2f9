"""`determined.transformers`: see `trainmaster.transformers`."""

from trainmaster.transformers.det_callback import DetCallback

__all__ = ["DetCallback"]
