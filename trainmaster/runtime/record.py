"""Base class of values with named fields. `dataclasses` imports `inspect`, which takes ten times as long as this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Tuple

if TYPE_CHECKING:
    from typing import Self, dataclass_transform  # of Python 3.11
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Record:
    """Base class: a subclass names its fields as a dataclass does; a value in the class is the field's default.
    Instances are immutable, and equal when their fields are.

    Raises TypeError for a field too many, too few or unknown.
    """

    fields: Tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.fields = tuple(cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = type(self).fields
        given = dict(zip(fields, values), **named)  # noqa: B905 - what is left over is counted below
        unknown = [name for name in given if name not in fields]
        missing = [name for name in fields if name not in given and not hasattr(type(self), name)]
        if unknown or missing or len(given) != len(values) + len(named):
            raise TypeError("%s takes %s" % (type(self).__name__, ", ".join(fields)))
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a %s cannot be changed" % type(self).__name__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(tuple(self.values().values()))

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % pair for pair in self.values().items()))

    def values(self) -> Dict[str, Any]:
        """All fields and their values."""
        return {name: getattr(self, name) for name in type(self).fields}

    def replaced(self, **named: Any) -> Self:
        """Return a copy with other values for some fields."""
        return type(self)(**{**self.values(), **named})
