"""The local dispatcher: this machine as a cluster, without root and without a daemon."""

from trainmaster.dispatchers.local.dispatcher import LocalDispatcher

__all__ = ["LocalDispatcher"]
