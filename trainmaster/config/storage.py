"""Models the `checkpoint_storage` section: where checkpoints are stored, and how many of them are kept.

The site's defaults may set what a file does not, so a part requires nothing but the type; `incomplete` checks the
merged section."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Tag, model_validator

from trainmaster.config.shapes import AbsolutePath, Line, Name, Natural, Prefix, Section, pick, tag_of, wrong


class _Common(Section):
    save_experiment_best: Natural = 0
    save_trial_best: Natural = 1
    save_trial_latest: Natural = 1


class Kept(_Common):
    """Only how many checkpoints are kept, for the storage of the site's defaults."""

    type: None = None


KEEP_POLICY = (*_Common.model_fields,)
"""The keys that say how many checkpoints are kept, whatever the storage."""


class SharedFs(_Common):
    """A folder that all nodes mount under the same path."""

    type: Literal["shared_fs"]
    host_path: AbsolutePath | None = None
    storage_path: Line | None = None
    propagation: Line = "rprivate"
    container_path: Line | None = None
    checkpoint_path: Line | None = None
    tensorboard_path: Line | None = None

    @model_validator(mode="after")
    def _below(self) -> Self:
        if self.storage_path is not None and (self.host_path is not None or not self.storage_path.startswith("/")):
            root = os.path.normpath(self.host_path or "/the/host_path")
            full = os.path.normpath(os.path.join(root, self.storage_path))
            if full != root and not full.startswith(root.rstrip("/") + "/"):
                where = f"host_path ({self.host_path})" if self.host_path else "host_path"
                raise wrong(f"must lie below {where}, found {self.storage_path!r}", "storage_path")
        return self

    @property
    def root(self) -> str:
        """The folder that holds one folder per checkpoint, on the host."""
        assert self.host_path is not None, "only a complete storage has a root"
        return os.path.normpath(os.path.join(self.host_path, self.storage_path or ""))


class Directory(_Common):
    """A path that exists in every container without a mount of ours."""

    type: Literal["directory"]
    container_path: Name | None = None


class S3(_Common):
    """A bucket of Amazon S3 or a compatible service."""

    type: Literal["s3"]
    bucket: Name | None = None
    access_key: Line | None = None
    secret_key: Line | None = None
    endpoint_url: Line | None = None
    prefix: Prefix | None = None


class Gcs(_Common):
    """A bucket of Google Cloud Storage."""

    type: Literal["gcs"]
    bucket: Name | None = None
    prefix: Prefix | None = None


class Azure(_Common):
    """A container of Azure Blob Storage."""

    type: Literal["azure"]
    container: Name | None = None
    connection_string: Line | None = None
    account_url: Line | None = None
    credential: Line | None = None

    @model_validator(mode="after")
    def _credential_fits(self) -> Self:
        if self.credential is not None and self.connection_string is not None:
            raise wrong("goes with account_url, not with connection_string; remove it", "credential")
        return self


_REQUIRED = {
    "shared_fs": ("host_path", "the folder that all nodes mount"),
    "directory": ("container_path", "the folder that exists in every container"),
    "s3": ("bucket", "the bucket for the checkpoints"),
    "gcs": ("bucket", "the bucket for the checkpoints"),
    "azure": ("container", "the blob container for the checkpoints"),
}


def incomplete(storage: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return what a completely merged section lacks: yields the path of the key below it, and a message."""
    kind = str(storage.get("type"))
    if kind not in _REQUIRED:
        return
    key, what = _REQUIRED[kind]
    if storage.get(key) is None:
        yield (key,), f"is required for {kind}: {what}"
    ways = [name for name in ("connection_string", "account_url") if storage.get(name) is not None]
    if kind == "azure" and len(ways) != 1:
        yield (), f"needs exactly one of connection_string and account_url, found {'both' if ways else 'none'}"


TYPES = ("shared_fs", "directory", "s3", "gcs", "azure")
_GONE = {"hdfs": "the storage hdfs is no longer supported; use shared_fs, directory, s3, gcs or azure"}


def _known(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") is None and value and value.keys() <= {*Kept.model_fields}:
        return value
    return value if isinstance(value, _Common) else pick(value, "type", dict.fromkeys(TYPES), _GONE, "storage type")


CheckpointStorage = Annotated[
    Annotated[SharedFs, Tag("<shared_fs>")]
    | Annotated[Directory, Tag("<directory>")]
    | Annotated[S3, Tag("<s3>")]
    | Annotated[Gcs, Tag("<gcs>")]
    | Annotated[Azure, Tag("<azure>")]
    | Annotated[Kept, Tag("<None>")],
    Discriminator(tag_of("type")),
    BeforeValidator(_known),
]
