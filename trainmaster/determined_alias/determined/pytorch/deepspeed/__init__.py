"""`determined.pytorch.deepspeed`: see `trainmaster.pytorch.deepspeed`."""

from trainmaster.pytorch.deepspeed import *  # noqa: F403
from trainmaster.pytorch.deepspeed import __all__  # noqa: F401
