"""The contract of object stores: `ObjectStore`, its values and its errors.

StorageFault
|-- StorageRefused   it will not work until somebody mends it: no such bucket, a wrong key, no room
|   `-- NoObject     there is no such object
`-- StorageAway      it does not answer now, or asks to come back later

The message of each is a sentence with the bucket, the key and the cause; it never holds a credential.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from trainmaster.config.storage import StorageOptions

PART = 16 * 2**20  # bytes of a part of a large object, unless it would have more than MOST_PARTS
MOST_PARTS = 10_000  # S3's limit; Azure allows 50,000 blocks
VALID = 3600  # seconds for which a signature holds


class StorageFault(Exception):
    """The store did not do what was asked."""


class StorageRefused(StorageFault):
    """It will not work until somebody mends it."""


class NoObject(StorageRefused):
    """There is no such object."""


class StorageAway(StorageFault):
    """It does not answer now, or asks to come back later."""


@dataclass(frozen=True)
class SignedRequest:
    """A request that its bearer may make for `VALID` seconds. PUT and GET may add `Content-MD5`, `Content-Length` and
    `Range`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredObject:
    """An object. `modified`: epoch seconds."""

    key: str
    size: int
    modified: float


class ObjectStore(Protocol):
    """One bucket (Azure: container). Thread-safe. Keys are complete paths in the bucket, without a leading slash.

    Every method may raise StorageRefused and StorageAway, and none repeats for longer than a minute; those that sign
    need no network once the first has been signed.
    """

    contract_version: ClassVar[int] = 1
    Options: ClassVar[type[StorageOptions]]

    def __init__(self, section: Any) -> None:
        """Prepare the bucket that a validated section of a configuration names; connects to nothing."""

    @property
    def place(self) -> str:
        """How messages call the bucket: `s3://bucket`."""

    @property
    def authority(self) -> str:
        """Certificates (PEM) by which its address is checked; empty: those that a machine trusts."""

    def probe(self) -> None:
        """Check that the bucket exists and may be listed."""

    def sign_put(self, key: str) -> SignedRequest:
        """Sign the upload of a whole object, of at most `PART` bytes."""

    def begin_parts(self, key: str) -> str:
        """Begin a large object; return the id of this upload."""

    def sign_part(self, key: str, upload: str, number: int) -> SignedRequest:
        """Sign the upload of a part; `number` counts from 1. The same part may be sent again."""

    def finish_parts(self, key: str, upload: str, marks: Sequence[str]) -> None:
        """Make the object of its parts. May be repeated after it succeeded.

        Args:
            key: of the object.
            upload: what `begin_parts` returned.
            marks: the `ETag` that the store answered with for each part, in order.
        """

    def abort_parts(self, prefix: str) -> int:
        """Forget the unfinished uploads of keys that begin with `prefix`; return how many there were."""

    def sign_get(self, key: str) -> SignedRequest:
        """Sign a download."""

    def read(self, key: str) -> Iterator[bytes]:
        """Yield an object's content. Raises NoObject."""

    def copy(self, source: str, target: str, size: int) -> None:
        """Copy an object of `size` bytes inside the bucket. Raises NoObject."""

    def list(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose keys begin with `prefix`, and come after the key `after`, in the order of their
        keys."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are no fault."""


def part_size(size: int) -> int:
    """Return the bytes of each part but the last of an object of `size` bytes: whole mebibytes."""
    least = -(-size // MOST_PARTS)
    return max(PART, -(-least // 2**20) * 2**20)
