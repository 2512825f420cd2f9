"""`determined.experimental` in jobs: the SDK's classes, and `client`."""

from . import client  # noqa: TID252 - a checker of types does not find this package by its name
from .client import *  # noqa: F403, TID252
from .client import __all__ as _names  # noqa: TID252

__all__ = ["client", *_names]
