"""Validates a resource manager's section of the master's configuration as a dispatcher's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from trainmaster.dispatchers.base import Rejected

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
