"""Reads resource managers' sections of the master's configuration: which dispatcher one names, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

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


OptionsT = TypeVar("OptionsT", bound=BaseModel)


def read_section(model: type[OptionsT], options: Mapping[str, Any], manager: str) -> OptionsT:
    """Return a section as `model`. Raises Rejected with one sentence that names the keys; `manager` is
    the resource manager in it."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the section'}: {fault['msg']}" for fault in error.errors()
        )
        raise Rejected(f"The {manager} resource manager's configuration is wrong: {faults}.") from None
