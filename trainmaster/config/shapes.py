"""The building blocks of all configuration models: one base class and the types of their fields.

Every union is told apart by a tag written `<so>`, which `validation` takes out of the paths it reports.
"""

from __future__ import annotations

import enum
import os.path
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SerializeAsAny,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainmaster.config.messages import in_words, nearest
from trainmaster.config.names import no_segment, only_dots


class Section(BaseModel):
    """A mapping with known keys. Null is the same as absent."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
    )
    nullable: ClassVar[frozenset[str]] = frozenset()
    """Keys whose null is a value."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Keys of earlier releases that are read and forgotten."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Keys that are known and not wanted here, each with the reason."""

    @classmethod
    def sections_of_plugins(cls) -> Mapping[str, type[Section]]:
        """Return the models of keys that installed plugins add to those of this class."""
        return {}

    @model_validator(mode="before")
    @classmethod
    def _forget(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if key not in cls.ignored and (value is not None or key in cls.nullable)
        }


def wrong(message: str, *at: str | int) -> PydanticCustomError:
    """Return an error with our own sentence, about the key `at` below the value that is being validated."""
    return PydanticCustomError("check", "{message}", {"message": message, "at": at})


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _one_line(value: str) -> str:
    if "\n" in value or "\t" in value:
        raise wrong("must be a single line, without line breaks and tabs")
    return value


def _not_empty(value: str) -> str:
    if not value.strip():
        raise wrong("must not be empty")
    return value


def _segment(value: str) -> str:
    if why := no_segment(value):
        raise wrong(f"{value!r} cannot be a name here: {why}")
    return value


def _label(value: str) -> str:
    if why := only_dots(value):
        raise wrong(f"{value!r} cannot be a label: {why}")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise wrong(f"must be an absolute path (it starts with /), found {value!r}")
    return value


def _no_climbing(value: str) -> str:
    if ".." in value.split("/"):
        raise wrong(f'must not contain "..", found {value!r}')
    return os.path.normpath(value) if value else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer; 100.0 counts as one, as in JSON Schema."""
Natural = Annotated[Whole, Field(ge=0, le=2**53)]
Positive = Annotated[Whole, Field(ge=1, le=2**53)]
Steps = Annotated[Whole, Field(ge=0, le=2**63 - 1)]
"""An amount of training: what the database can count."""
Port = Annotated[Whole, Field(ge=1, le=65535)]
Text = str
"""Free text; line breaks are allowed."""
Line = Annotated[str, AfterValidator(_one_line)]
Name = Annotated[str, AfterValidator(_one_line), AfterValidator(_not_empty)]
Segment = Annotated[Name, AfterValidator(_segment)]
"""A name that is a segment of an address of the API."""
Label = Annotated[Line, AfterValidator(_label)]
AbsolutePath = Annotated[Name, AfterValidator(_absolute)]
Prefix = Annotated[Line, AfterValidator(_no_climbing)]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?\s*", re.IGNORECASE)


def _bytes(value: Any) -> Any:
    value = _whole(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong(f"a size is wanted (bytes, or a text such as 4 GiB), found {in_words(value)}")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if not match:
            raise wrong(f"a size is wanted (bytes, or a text such as 4 GiB), found {in_words(value)}")
        value = int(float(match[1]) * 1024 ** " kmgtp".index(match[2].lower() or " "))
    if value < 0:
        raise wrong(f"must be at least 0, found {value}")
    return value


Bytes = Annotated[int, BeforeValidator(_bytes)]
"""A size in bytes; units are powers of 1024, with or without the i."""


def one_of(words: type[enum.StrEnum]) -> BeforeValidator:
    """Read one of `words` by its text."""

    def read(value: Any) -> Any:
        if isinstance(value, words):
            return value
        valid = [word.value for word in words]
        if value not in valid:
            close = nearest(value, valid) if isinstance(value, str) else None
            hint = f"; did you mean {close}?" if close else ""
            raise wrong(f"must be one of {', '.join(valid)}; found {in_words(value)}{hint}")
        return words(value)

    return BeforeValidator(read)


@dataclass(frozen=True)
class Chosen:
    """Marks a field whose model depends on its data; `model` raises PydanticCustomError where the data name none."""

    model: Callable[[Any], type[Section]]


def chosen(base: type[Section], model: Callable[[Any], type[Section]]) -> Any:
    """Return the type of a field that holds some subclass of `base`: `model` says which, from the field's data."""

    def read(value: Any) -> Any:
        return value if isinstance(value, base) else model(value).model_validate(value)

    as_it_is: Any = SerializeAsAny
    return Annotated[base, as_it_is(), PlainValidator(read), Chosen(model)]


def pick(value: Any, key: str, valid: Collection[str], gone: Mapping[str, str], what: str) -> Any:
    """Check the key that tells the members of a union apart, before the union is entered."""
    if not isinstance(value, dict):
        raise wrong(f"a mapping (key: value) is wanted, found {in_words(value)}")
    tag = value.get(key)
    if tag is None:
        raise wrong(f"is required; one of {', '.join(valid)}", key)
    if isinstance(tag, str) and tag in gone:
        raise wrong(gone[tag], key)
    if not isinstance(tag, str) or tag not in valid:
        close = nearest(tag, valid) if isinstance(tag, str) else None
        hint = f"; did you mean {close}?" if close else f"; one of {', '.join(valid)}"
        raise wrong(f"there is no {what} {tag!r}{hint}", key)
    return value


def tag_of(key: str) -> Any:
    """Return the discriminator of a union whose members are told apart by `key`; they carry tags `<value>`."""

    def discriminate(value: Any) -> str:
        tag = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
        return f"<{tag}>"

    return discriminate
