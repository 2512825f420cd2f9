"""Models `data` as a list: what is copied to the node's own disk before a training starts."""

from __future__ import annotations

import os.path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Tag, model_validator

from trainmaster.config.names import no_segment
from trainmaster.config.shapes import Line, Name, Section, wrong

STORE = "storage:"
"""What a source begins with that lies in the experiment's object store, below `data/` of its prefix."""
_PACKED = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")


def _source(value: str) -> str:
    if value.startswith(STORE):
        path = value[len(STORE) :]
        if not path.strip("/") or ".." in path.split("/"):
            raise wrong(f"must name something below the storage, as in {STORE}imagenet, found {value!r}")
    elif not value.startswith("/"):
        raise wrong(f"must be an absolute path, or {STORE}PATH for the experiment's object store, found {value!r}")
    return value


class DataItem(Section):
    """A folder, a file, an archive or a prefix of the object store. `name`: of the copy below `$TRAINMASTER_DATA`;
    `keep`: whether the copy stays on the node for later jobs; `unpack`: whether an archive is unpacked."""

    source: Annotated[Name, AfterValidator(_source)]
    to: Literal["node"]
    name: Line = ""
    keep: bool = True
    unpack: bool = True

    @model_validator(mode="after")
    def _named(self) -> Self:
        name = self.name or _name_of(self.source, self.unpack)
        if why := no_segment(name) or ("" if name else "it is empty"):
            raise wrong(f"{name!r} cannot be the name of a copy: {why}; choose one with `name`", "name")
        object.__setattr__(self, "name", name)
        return self


def _name_of(source: str, unpack: bool) -> str:
    name = os.path.basename(source.removeprefix(STORE).rstrip("/"))
    ending = next((ending for ending in _PACKED if name.endswith(ending)), "") if unpack else ""
    return name.removesuffix(ending)


def _distinct(items: list[DataItem]) -> list[DataItem]:
    names = [item.name for item in items]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise wrong(f"two copies would be called {name!r}; choose another `name` for one", at)
    return items


def _kind(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<mapping>"


Data = Annotated[
    Annotated[list[DataItem], AfterValidator(_distinct), Tag("<list>")] | Annotated[dict[str, Any], Tag("<mapping>")],
    Discriminator(_kind),
]
"""A list of what is copied to nodes; or, as in Determined, a mapping that only the training reads."""
