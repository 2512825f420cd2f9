"""`determined.core`: see `trainmaster.core`."""

from trainmaster.core import *  # noqa: F403
from trainmaster.core import __all__  # noqa: F401
