"""Models the `checkpoint_storage` section: where checkpoints are stored, and how many of them are kept.

The site's defaults may set what a file does not, so a part requires nothing but the type; `incomplete` checks the
merged section."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from trainmaster import plugins
from trainmaster.config.shapes import AbsolutePath, Line, Name, Natural, Prefix, Section, pick, wrong


def _address(value: str) -> str:
    if not value.startswith(("http://", "https://")) or not value.partition("://")[2].strip("/"):
        raise wrong(f"must be an address (http:// or https://), found {value!r}")
    return value


Address = Annotated[Name, AfterValidator(_address)]


class StorageOptions(Section):
    """What all storages have: how many checkpoints are kept."""

    ours: ClassVar[frozenset[str]] = frozenset()
    """Keys that Determined has not: its harness refuses them, so that one that is not set is not written."""

    @property
    def kind(self) -> str | None:
        """The type; None where only the policy is named."""
        kind: str | None = getattr(self, "type", None)
        return kind

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if value is not None or key not in self.ours}

    save_experiment_best: Natural = 0
    save_trial_best: Natural = 1
    save_trial_latest: Natural = 1


class Kept(StorageOptions):
    """Only how many checkpoints are kept, for the storage of the site's defaults."""

    type: None = None


KEEP_POLICY = (*StorageOptions.model_fields,)
"""The keys that say how many checkpoints are kept, whatever the storage."""


class SharedFs(StorageOptions):
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


class Directory(StorageOptions):
    """A path that exists in every container without a mount of ours."""

    type: Literal["directory"]
    container_path: Name | None = None


class S3(StorageOptions):
    """A bucket of Amazon S3 or a compatible service."""

    ours = frozenset({"region", "addressing", "ca_file"})

    type: Literal["s3"]
    bucket: Name | None = None
    access_key: Line | None = None
    secret_key: Line | None = None
    endpoint_url: Address | None = None
    prefix: Prefix | None = None
    region: Name | None = None
    addressing: Literal["path", "virtual"] | None = None
    """Whether the bucket stands in the path of an address or in the name of the host. None: in the path where
    `endpoint_url` is set, else as Amazon has it."""
    ca_file: AbsolutePath | None = None
    """Of the master: certificates (PEM) of the authority that signed the store's own."""


class Gcs(StorageOptions):
    """A bucket of Google Cloud Storage."""

    ours = frozenset({"endpoint_url", "credentials_file"})

    type: Literal["gcs"]
    bucket: Name | None = None
    prefix: Prefix | None = None
    endpoint_url: Address | None = None
    """Of another service that speaks the protocol."""
    credentials_file: AbsolutePath | None = None
    """Of the master: the key of a service account. None: what `GOOGLE_APPLICATION_CREDENTIALS` or the machine gives."""


class Azure(StorageOptions):
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


SITE_ONLY = ("ca_file", "credentials_file")
"""Keys that name files of the master."""
NOT_OF_USERS = "names a file of the master, and belongs into its configuration"
CREDENTIALS = ("access_key", "secret_key", "connection_string", "credential")


def without_credentials(storage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section as experiments and jobs get it from the site: who signs for them is the master."""
    hidden = {*SITE_ONLY, *CREDENTIALS}
    shown = {key: value for key, value in storage.items() if key not in hidden}
    if storage.get("connection_string") and not shown.get("account_url"):
        shown["account_url"] = account_of(str(storage["connection_string"]))
    return shown


def as_determined(storage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with the keys that Determined's harness knows."""
    hidden = {"s3": S3.ours, "gcs": Gcs.ours}.get(str(storage.get("type")), frozenset())
    return {key: value for key, value in storage.items() if key not in hidden}


def account_of(connection_string: str) -> str:
    """Return the address of the account that a connection string of Azure names; empty where it names none."""
    parts = dict(part.split("=", 1) for part in connection_string.split(";") if "=" in part)
    known = {key.lower(): value.strip() for key, value in parts.items()}
    if "blobendpoint" in known:
        return known["blobendpoint"].rstrip("/")
    if "accountname" not in known:
        return ""
    protocol, suffix = known.get("defaultendpointsprotocol", "https"), known.get("endpointsuffix", "core.windows.net")
    return f"{protocol}://{known['accountname']}.blob.{suffix}"


def incomplete(storage: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return what a completely merged section lacks: yields the path of the key below it, and a message."""
    kind = str(storage.get("type"))
    if kind not in _REQUIRED:
        return
    key, what = _REQUIRED[kind]
    if storage.get(key) is None:
        yield (key,), f"is required for {kind}: {what}"
    keys = [name for name in ("access_key", "secret_key") if storage.get(name) is not None]
    if len(keys) == 1:
        yield (keys[0],), "needs the other key: access_key and secret_key go together"
    ways = [name for name in ("connection_string", "account_url") if storage.get(name) is not None]
    if kind == "azure" and len(ways) != 1:
        yield (), f"needs exactly one of connection_string and account_url, found {'both' if ways else 'none'}"


TYPES = ("shared_fs", "directory", "s3", "gcs", "azure")
_GONE = {"hdfs": "the storage hdfs is no longer supported; use shared_fs, directory, s3, gcs or azure"}


def types() -> tuple[str, ...]:
    """Return the kinds of storage: ours, and those of installed plugins."""
    return (*TYPES, *(name for name in sorted(plugins.installed(plugins.STORAGES)) if name not in TYPES))


def _known(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") is None and value and value.keys() <= {*Kept.model_fields}:
        return value
    if isinstance(value, StorageOptions) or (isinstance(value, dict) and value.get("type") in TYPES):
        return value  # before the installed plugins are asked for, which takes milliseconds
    picked = pick(value, "type", dict.fromkeys(types()), _GONE, "storage type")
    try:
        options: type[StorageOptions] = plugins.load(plugins.STORAGES, picked["type"]).Options
    except plugins.PluginError as error:
        raise wrong(error.after_colon, "type") from None
    return options.model_validate(picked)


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"<{kind}>" if kind is None or kind in TYPES else "<plugin>"


CheckpointStorage = Annotated[
    Annotated[SharedFs, Tag("<shared_fs>")]
    | Annotated[Directory, Tag("<directory>")]
    | Annotated[S3, Tag("<s3>")]
    | Annotated[Gcs, Tag("<gcs>")]
    | Annotated[Azure, Tag("<azure>")]
    | Annotated[SerializeAsAny[StorageOptions], Tag("<plugin>")]
    | Annotated[Kept, Tag("<None>")],
    Discriminator(_tag),
    BeforeValidator(_known),
]
