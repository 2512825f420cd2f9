"""Creates the dispatcher that a resource manager's section of the master's file names."""

from __future__ import annotations

from trainmaster import plugins
from trainmaster.dispatchers.base import Dispatcher, Rejected, Setup


def make(kind: str, setup: Setup) -> Dispatcher:
    """Create the dispatcher called `kind`, checked against the contract.

    Args:
        kind: the name under which it is announced.
        setup: its arguments.

    Raises:
        Rejected: a sentence for the administrator: an unknown name, a plugin that cannot be imported or that does not
            fulfil the contract, options that the dispatcher does not take.
    """
    try:
        made: Dispatcher = plugins.load(plugins.DISPATCHERS, kind)(setup)
    except plugins.PluginError as error:
        raise Rejected(f"resource_manager.type: {error.after_colon}.") from None
    return made
