"""`determined.pytorch.samplers`: see `trainmaster.pytorch.samplers`."""

from trainmaster.pytorch.samplers import *  # noqa: F403
