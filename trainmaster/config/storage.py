"""The `checkpoint_storage` section: where checkpoints live, and how many of them stay."""

from __future__ import annotations

import os.path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Tag, model_validator

from .shapes import AbsolutePath, Line, Name, Natural, Prefix, Section, pick, tag_of, wrong


class _Common(Section):
    save_experiment_best: Natural = 0
    save_trial_best: Natural = 1
    save_trial_latest: Natural = 1


class Kept(_Common):
    """Only how many checkpoints stay, for the storage that the site's defaults name."""

    type: None = None


class SharedFs(_Common):
    """A folder that all nodes see under the same path."""

    type: Literal["shared_fs"]
    host_path: AbsolutePath
    storage_path: Line | None = None
    propagation: Line = "rprivate"
    container_path: Line | None = None
    checkpoint_path: Line | None = None
    tensorboard_path: Line | None = None

    @model_validator(mode="after")
    def _below(self) -> Self:
        if self.storage_path is not None:
            root = os.path.normpath(self.host_path)
            full = os.path.normpath(os.path.join(root, self.storage_path))
            if full != root and not full.startswith(root.rstrip("/") + "/"):
                raise wrong(
                    f"must lie below host_path ({self.host_path}), found {self.storage_path!r}",
                    "storage_path",
                )
        return self

    @property
    def root(self) -> str:
        """The folder that holds one folder per checkpoint, on the host."""
        return os.path.normpath(os.path.join(self.host_path, self.storage_path or ""))


class Directory(_Common):
    """A path that is there in every container without our doing."""

    type: Literal["directory"]
    container_path: Name


class S3(_Common):
    """A bucket of Amazon S3 or of what speaks its protocol."""

    type: Literal["s3"]
    bucket: Name
    access_key: Line | None = None
    secret_key: Line | None = None
    endpoint_url: Line | None = None
    prefix: Prefix | None = None


class Gcs(_Common):
    """A bucket of Google Cloud Storage."""

    type: Literal["gcs"]
    bucket: Name
    prefix: Prefix | None = None


class Azure(_Common):
    """A container of Azure Blob Storage."""

    type: Literal["azure"]
    container: Name
    connection_string: Line | None = None
    account_url: Line | None = None
    credential: Line | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if (self.connection_string is None) == (self.account_url is None):
            found = "none" if self.account_url is None else "both"
            raise wrong(f"needs exactly one of connection_string and account_url, found {found}")
        if self.credential is not None and self.connection_string is not None:
            raise wrong("goes with account_url, not with connection_string; remove it", "credential")
        return self


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
