"""From pydantic's errors to complaints in words, with lines and the nearest valid key."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeVar, Union

from pydantic import BaseModel, RootModel, Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from trainmaster.config.messages import Complaint, Path, in_words, key_path, nearest
from trainmaster.config.shapes import Chosen, Section
from trainmaster.config.source import Document

M = TypeVar("M", bound=BaseModel)

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}


def check(model: type[M], data: Mapping[str, Any], document: Document) -> tuple[M | None, list[Complaint]]:
    """Validate `data` against `model`: the instance, or all that is wrong in the order of the file."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        complaints = [_complaint(model, details, document) for details in error.errors(include_url=False)]
        return None, in_order(complaints)


def in_order(complaints: Iterable[Complaint]) -> list[Complaint]:
    """Each complaint once, in the order of the file; those without a line last."""
    return sorted(dict.fromkeys(complaints), key=lambda c: (c.line is None, c.line or 0, c.column or 0))


def _complaint(model: type[BaseModel], error: ErrorDetails, document: Document) -> Complaint:
    context = error.get("ctx", {})
    loc = (*error["loc"], *context.get("at", ()))
    path = _as_written(loc, document.data)
    if error["type"] == "extra_forbidden":
        return _unknown_key(model, loc, path, document)
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        message, hint = _one_of(_annotations(model, loc, document.data), error)
        return document.complain(path, message, hint)
    return document.complain(path, _sentence(error, context))


def _sentence(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind, given = error["type"], in_words(error["input"])
    if kind == "check":
        return str(context["message"])
    if kind == "missing":
        return "is required"
    if kind in _WANTED:
        hint = ""
        if kind == "string_type" and isinstance(error["input"], bool | int | float):
            hint = "; put it in quotes"
        if kind == "bool_type" and str(error["input"]).lower() in ("yes", "no", "on", "off", "y", "n"):
            hint = "; YAML 1.2 knows only true and false"
        return f"{_WANTED[kind]} is wanted, found {given}{hint}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        return f"must be {words} {int(bound) if bound == int(bound) else bound}, found {error['input']}"
    if kind == "literal_error":
        return f"must be {context['expected']}, found {given}"
    if kind == "too_short":
        return f"needs at least {context['min_length']} entries, found {context['actual_length']}"
    return f"{error['msg']}, found {given}"


def _one_of(annotations: Iterable[Any], error: ErrorDetails) -> tuple[str, str | None]:
    values = [value for annotation in annotations for value in _literals(annotation) if isinstance(value, str)]
    given = error["input"]
    return f"must be one of {', '.join(values)}; found {in_words(given)}", nearest(given, values)


def _literals(annotation: Any) -> Iterator[Any]:
    for member in _members(annotation):
        if typing.get_origin(_bare(member)) is typing.Literal:
            yield from typing.get_args(_bare(member))


def _unknown_key(model: type[BaseModel], loc: Path, path: Path, document: Document) -> Complaint:
    key = str(path[-1])
    sections = [m for annotation in _annotations(model, loc[:-1], document.data) for m in _models(annotation)]
    for section in sections:
        if reason := section.refused.get(key):
            return document.complain(path, reason)
    valid = sorted({name for section in sections for name in _keys(section)})
    if close := nearest(key, valid):
        return document.complain(path, "unknown key", close)
    homes = sorted(_homes(model, document.data).get(key, ()), key=lambda home: (len(home), home))
    if homes and len(homes[0]) + 1 != len(path):
        return document.complain(path, "unknown key", key_path((*homes[0], key)))
    return document.complain(path, f"unknown key; the keys here are {', '.join(valid)}")


def _as_written(loc: Path, data: Any) -> Path:
    """Return a location in the models as a path in the file: without tags of unions, and without the keys that a short
    form (one image for all kinds of slots, a device as a text) does not spell out."""
    path: Path = ()
    for part in loc:
        if _is_tag(part) or (path and isinstance(part, str) and data is not None and not isinstance(data, dict)):
            continue
        path = (*path, part)
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            data = None
    return path


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


# -- walking the models


def _annotations(model: type[BaseModel], loc: Path, data: Any) -> list[Any]:
    """Return the annotations that a location can have; `data` chooses the models of plugins."""
    annotations: list[Any] = [model]
    for part in loc:
        annotations = [below for annotation in annotations for below in _step(annotation, part, data)]
        if not _is_tag(part):
            data = _below(data, part)
            annotations = [_choice(annotation, data) for annotation in annotations]
    return annotations


def _below(data: Any, part: str | int) -> Any:
    try:
        return data[part]
    except (KeyError, IndexError, TypeError):
        return None


def _choice(annotation: Any, data: Any) -> Any:
    """Return the model that the data choose, where they choose one."""
    marks = (mark for member in _members(annotation) for mark in getattr(member, "__metadata__", ()))
    for mark in marks:
        if isinstance(mark, Chosen):
            with suppress(PydanticCustomError):
                return mark.model(data)
    return annotation


def _step(annotation: Any, part: str | int, data: Any) -> Iterator[Any]:
    for member in _members(annotation):
        if _is_tag(part):
            if Tag(str(part)) in getattr(member, "__metadata__", ()):
                yield member
            continue
        bare = _bare(member)
        if isinstance(bare, type) and issubclass(bare, RootModel):
            yield from _step(bare.model_fields["root"].annotation, part, data)
        elif isinstance(bare, type) and issubclass(bare, BaseModel):
            yield from (_annotated(field) for name, field in bare.model_fields.items() if name == part)
            if issubclass(bare, Section) and part in bare.sections_of_plugins():
                yield bare.sections_of_plugins()[str(part)]
        elif typing.get_args(bare):
            yield typing.get_args(bare)[-1]  # of a list its items, of a dict its values


def _annotated(field: FieldInfo) -> Any:
    """Return a field's annotation with the mark that its model is chosen, which pydantic keeps apart."""
    marks = [mark for mark in field.metadata if isinstance(mark, Chosen)]
    return Annotated[field.annotation, marks[0]] if marks else field.annotation


def _members(annotation: Any) -> Iterator[Any]:
    """Return the members of a union, with their metadata; the annotation itself when it is none."""
    bare = _bare(annotation)
    if typing.get_origin(bare) in (Union, types.UnionType):
        for member in typing.get_args(bare):
            yield from _members(member)
    elif isinstance(bare, type) and issubclass(bare, RootModel):
        yield annotation
        yield from _members(bare.model_fields["root"].annotation)
    else:
        yield annotation


def _bare(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation


def _models(annotation: Any) -> Iterator[type[Section]]:
    for member in _members(annotation):
        bare = _bare(member)
        if isinstance(bare, type) and issubclass(bare, Section):
            yield bare


def _keys(section: type[Section]) -> Iterable[str]:
    return [*section.model_fields, *section.sections_of_plugins()]


def _homes(model: type[BaseModel], data: Any) -> Mapping[str, set[tuple[str, ...]]]:
    """Where in the file each key is valid, two levels deep: for keys that stand in the wrong section."""
    homes: dict[str, set[tuple[str, ...]]] = {}
    for name, field in model.model_fields.items():
        homes.setdefault(name, set()).add(())
        for section in _models(_choice(_annotated(field), _below(data, name))):
            for key in _keys(section):
                homes.setdefault(key, set()).add((name,))
    return homes
