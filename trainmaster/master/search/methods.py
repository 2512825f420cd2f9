"""Finds the searcher that the `searcher` section of an experiment's configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import PydanticCustomError

from trainmaster.config.messages import key_path
from trainmaster.config.searcher import incomplete, model_of
from trainmaster.config.source import Document
from trainmaster.config.validation import check
from trainmaster.master.search.actions import SearchError
from trainmaster.master.search.method import Method, Searcher


def searcher_of(section: Mapping[str, Any]) -> Searcher:
    """Return the searcher of a complete section. Raises SearchError."""
    given = {key: value for key, value in section.items() if value is not None}
    try:
        model = model_of(given)
    except PydanticCustomError as error:
        raise SearchError(error.message()) from None
    for key, sentence in incomplete(given):
        if key == "metric":
            continue  # experiments must name one; a search without comparisons runs without it
        raise SearchError(f"searcher.{key} {sentence}")
    known = {key: value for key, value in given.items() if key in model.model_fields}
    made, complaints = check(model, known, Document("searcher", known))
    if made is None:
        raise SearchError(". ".join(f"searcher.{key_path(each.path)} {each.message}" for each in complaints))
    return cast(Searcher, made)


def make_method(searcher: Mapping[str, Any], hparams: Mapping[str, Any]) -> Method:
    """Return the method that `searcher` names, not yet begun. Raises SearchError."""
    return searcher_of(searcher).method(hparams)
