"""Google Cloud Storage.

A large object is put together of objects with its parts (`compose`), which are then deleted: plain uploads of objects
are all that a signature has to allow.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from trainmaster.config.storage import Gcs
from trainmaster.storage.contract import VALID, NoObject, SignedRequest, StorageAway, StorageRefused, StoredObject

_AT_ONCE = 32  # objects that one request puts together
_BLOCK = 1 << 20  # bytes
_TIMEOUT = (10, 60)  # seconds to connect, and between bytes
_REPEATS = 20.0  # seconds for which a call is repeated
_PARTS = ".parts"


class GcsStore:
    """A bucket."""

    contract_version = 1
    Options = Gcs

    def __init__(self, section: Gcs) -> None:
        self._section = section

    @property
    def place(self) -> str:
        return f"gs://{self._section.bucket}"

    @property
    def authority(self) -> str:
        return ""

    def probe(self) -> None:
        with self._faults(""):
            list(self._client.list_blobs(self._bucket, max_results=1, **_patience()))

    def sign_put(self, key: str) -> SignedRequest:
        return self._signed("PUT", key)

    def begin_parts(self, key: str) -> str:
        del key
        return "parts"

    def sign_part(self, key: str, upload: str, number: int) -> SignedRequest:
        del upload
        return self._signed("PUT", _part(key, number))

    def finish_parts(self, key: str, upload: str, marks: Sequence[str]) -> None:
        del upload
        parts = [_part(key, number) for number in range(1, len(marks) + 1)]
        with self._faults(key):
            whole = self._bucket.blob(key)
            if not self._bucket.blob(parts[-1]).exists(**_patience()) and whole.exists(**_patience()):
                return  # the answer to an earlier call was lost
            level, names = 0, parts
            while len(names) > _AT_ONCE:
                level += 1
                groups = [names[begin : begin + _AT_ONCE] for begin in range(0, len(names), _AT_ONCE)]
                names = [_part(key, number, level) for number in range(1, len(groups) + 1)]
                for name, group in zip(names, groups, strict=True):
                    self._compose(name, group)
                parts += names
            self._compose(key, names)
        self.delete(parts)

    def abort_parts(self, prefix: str) -> int:
        unfinished = [found.key for found in self.list(prefix) if f"{_PARTS}/" in found.key]
        self.delete(unfinished)
        return len({key.rpartition("/")[0] for key in unfinished})

    def sign_get(self, key: str) -> SignedRequest:
        return self._signed("GET", key)

    def read(self, key: str) -> Iterator[bytes]:
        with self._faults(key), self._bucket.blob(key).open("rb", chunk_size=8 * _BLOCK, **_patience()) as file:
            while block := file.read(_BLOCK):
                yield block

    def copy(self, source: str, target: str, size: int) -> None:
        del size
        with self._faults(source):
            goal = self._bucket.blob(target)
            token, _, _ = goal.rewrite(self._bucket.blob(source), **_patience())
            while token is not None:
                token, _, _ = goal.rewrite(self._bucket.blob(source), token=token, **_patience())

    def list(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        with self._faults(prefix):
            # `start_offset` is included.
            found = self._client.list_blobs(self._bucket, prefix=prefix, start_offset=after or None, **_patience())
            for blob in found:
                if after and blob.name == after:
                    continue
                yield StoredObject(blob.name, int(blob.size), blob.updated.timestamp())

    def delete(self, keys: Sequence[str]) -> None:
        from google.api_core.exceptions import NotFound

        for key in keys:
            with self._faults(key):
                try:
                    self._bucket.blob(key).delete(**_patience())
                except NotFound as error:
                    if "bucket" in str(error).lower() and "object" not in str(error).lower():
                        raise

    # -- inside ------------------------------------------------------------------------------------------------------

    @cached_property
    def _client(self) -> Any:
        from google.cloud import storage  # 0.2 s and 39 MB, for masters with such a storage

        section = self._section
        options = {"api_endpoint": section.endpoint_url} if section.endpoint_url else None
        if section.credentials_file:
            return storage.Client.from_service_account_json(section.credentials_file, client_options=options)
        return storage.Client(client_options=options)

    @cached_property
    def _bucket(self) -> Any:
        return self._client.bucket(self._section.bucket)

    def _compose(self, key: str, sources: Sequence[str]) -> None:
        self._bucket.blob(key).compose([self._bucket.blob(source) for source in sources], **_patience())

    def _signed(self, method: str, key: str) -> SignedRequest:
        with self._faults(key):
            url = self._bucket.blob(key).generate_signed_url(
                version="v4",
                expiration=dt.timedelta(seconds=VALID),
                method=method,
                api_access_endpoint=self._section.endpoint_url or "https://storage.googleapis.com",
            )
        return SignedRequest(str(url))

    @contextmanager
    def _faults(self, key: str) -> Iterator[None]:
        """Turn Google's errors into ours."""
        from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, RetryError
        from google.auth.exceptions import GoogleAuthError, TransportError
        from requests.exceptions import RequestException

        try:
            yield
        except GoogleAPICallError as error:
            raise self._fault(key, int(error.code or 0), str(error.message or "")) from None
        except (TransportError, RequestException, RetryError, OSError) as error:
            if isinstance(error, FileNotFoundError | PermissionError):
                raise StorageRefused(f"{self._where(key)} cannot be used: {error}.") from None
            raise StorageAway(f"{self._where(key)} does not answer: {error}.") from None
        except (GoogleAPIError, GoogleAuthError, ValueError, AttributeError) as error:
            raise StorageRefused(f"{self._where(key)} cannot be used: {error}.") from None

    def _fault(self, key: str, status: int, message: str) -> Exception:
        where = self._where(key)
        if status == 404:
            return (
                NoObject(f"There is no {where}.")
                if key and "bucket" not in message.lower()
                else StorageRefused(f"{self.place} cannot be used: there is no such bucket.")
            )
        if status >= 500 or status in (408, 429):
            return StorageAway(f"{where} cannot be used now (status {status}).")
        words = {401: "the key is unknown or has expired", 403: "the key may not do this"}
        return StorageRefused(f"{where} cannot be used: {words.get(status) or message or f'status {status}'}.")

    def _where(self, key: str) -> str:
        return f"{self.place}/{key}" if key else self.place


def _patience() -> Any:
    """Return how long a call waits, and repeats."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    return {"timeout": _TIMEOUT, "retry": DEFAULT_RETRY.with_timeout(_REPEATS)}


def _part(key: str, number: int, level: int = 0) -> str:
    folder, _, name = key.rpartition("/")
    return f"{folder}/{_PARTS}/{name}/{level}-{number:05d}"
