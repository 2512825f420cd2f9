"""`determined.pytorch`: see `trainmaster.pytorch`."""

from trainmaster.pytorch import *  # noqa: F403
from trainmaster.pytorch import __all__  # noqa: F401
