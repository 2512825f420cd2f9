"""Dispatcher for PBS: OpenPBS 20 to 23 and PBS Pro, through their commands."""

from trainmaster.dispatchers.pbs.dispatcher import PbsDispatcher

__all__ = ["PbsDispatcher"]
