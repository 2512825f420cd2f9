"""Dispatcher `local`: runs jobs as processes of this machine, without root and without a daemon."""

from trainmaster.dispatchers.local.dispatcher import LocalDispatcher

__all__ = ["LocalDispatcher"]
