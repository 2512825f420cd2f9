"""What all values of JSON columns have in common, and the lenient reading of sections of configurations."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from trainmaster.config.shapes import Section

Json = dict[str, Any]
S = TypeVar("S", bound=Section)


class StoredJson:
    """A JSON object exactly as it is stored. Subclasses read it by typed properties, each when it is wanted first."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(stored)

    def to_json(self) -> Json:
        """Return the object as it is stored. It is not a copy: callers must not change it."""
        return self._stored if isinstance(self._stored, dict) else dict(self._stored)

    def updated(self, **values: Any) -> Self:
        """Return a copy with other values of these keys."""
        return type(self)({**self._stored, **values})

    def __bool__(self) -> bool:
        return bool(self._stored)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._stored == other._stored

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stored!r})"


def section_of(model: type[S], stored: Any) -> S:
    """Return the section that was stored, with the model's defaults for what it lacks, and for what no longer fits."""
    data = stored if isinstance(stored, dict) else {}
    while True:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            if not data:
                raise
            data = _without(data, error.errors(include_url=False)[0]["loc"])


def _without(data: Json, path: tuple[str | int, ...]) -> Json:
    """Return a copy without the value at `path`, or without the nearest value above it."""
    data = copy.deepcopy(data)
    holder: Any = None
    key: Any = None
    value: Any = data
    for part in path:
        if not isinstance(value, dict | list) or (isinstance(value, dict) and part not in value):
            break
        below: Any = value
        holder, key, value = value, part, below[part]
    if holder is None:
        return {}
    del holder[key]
    return data
