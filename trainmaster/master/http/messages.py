"""Base classes of requests and answers: camelCase, 64-bit integers as strings, RFC 3339 times, null for absent
values."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

from trainmaster.master.http import field_limits
from trainmaster.master.values.stored import Json


def rfc3339(time: dt.datetime) -> str:
    """Return a time in RFC 3339 with millisecond precision: older Python clients cannot read more."""
    return time.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def precise(time: dt.datetime) -> str:
    """Return a time as protobuf writes it: to the microsecond, in 0, 3 or 6 digits. For times that are returned as they
    were sent."""
    digits = "microseconds" if time.microsecond % 1000 else "milliseconds" if time.microsecond else "seconds"
    return time.astimezone(dt.UTC).isoformat(timespec=digits).replace("+00:00", "Z")


Int64 = Annotated[int, PlainSerializer(str, return_type=str)]


Time = Annotated[dt.datetime, PlainSerializer(rfc3339, return_type=str)]
_UNSTORABLE, _SURROGATE = re.compile("[\0\ud800-\udfff]"), re.compile("[\ud800-\udfff]")


class Shape(BaseModel):
    """Base class of responses: fields are written in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Storable(BaseModel):
    """Base class of received data: its texts can be stored by PostgreSQL, and no field is without a limit. `with_nul`:
    fields that may hold NUL."""

    with_nul: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="after")
    def _storable(self) -> Self:
        for name, value in self:
            refused = _SURROGATE if name in self.with_nul else _UNSTORABLE
            if isinstance(value, str) and (odd := refused.search(value)):
                around = ascii(value[max(odd.start() - 20, 0) : odd.end() + 20])
                raise ValueError(f"{name} ({around}) holds a NUL character or half a surrogate pair, which no text may")
        return self

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        """Raise Invalid."""
        field_limits.check(self)
        return self


class Body(Storable):
    """Base class of users' requests, read as protobuf's JSON: camelCase or snake_case, null for absent values. Unknown
    fields are refused with their names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class Error(Shape):
    """The body of every status but 200, as grpc-gateway writes it; `message` is the same sentence."""

    class Inside(Shape):
        code: int  # gRPC's
        reason: str  # gRPC's name of the code
        error: str
        details: list[Json] = []

    error: Inside
    message: str
