"""Values with names, for the price of a plain class.

`typing` and its NamedTuples, or `dataclasses`, cost every job 5 to 15 ms of CPU before it has begun. For the same
reason the modules of this package name types only where a type checker looks: `TYPE_CHECKING = False` is its sign.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Self, Tuple, dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Record:
    """A subclass names its fields as a dataclass does; a value in the class is the field's default. Nothing can be
    set afterwards; two are equal when their fields are.

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
        """The fields and what they hold."""
        return {name: getattr(self, name) for name in type(self).fields}

    def replaced(self, **named: Any) -> Self:
        """The same with other values for some fields."""
        return type(self)(**{**self.values(), **named})
