"""Azure Blob Storage."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlsplit

from trainmaster.config.storage import Azure
from trainmaster.storage.contract import VALID, NoObject, SignedRequest, StorageAway, StorageRefused, StoredObject

_AT_ONCE = 256  # blobs of one request to delete
_SLACK = 900  # seconds by which the clock of the store may be behind
_COPY_WAIT = 50.0  # seconds; larger blobs are copied in the background
_CONNECT, _READ = 10, 60  # seconds
_RETRIES = {"retry_total": 3, "initial_backoff": 1, "increment_base": 2}  # seconds of the pauses
_BLOCK_ID = "%010d"  # all of a blob have the same length

_WORDS = {
    "ContainerNotFound": "there is no such container",
    "AuthenticationFailed": "the key is wrong, has expired, or the clocks of the store and of the master differ",
    "AuthorizationFailure": "the key may not do this",
    "AuthorizationPermissionMismatch": "the key may not do this",
    "InsufficientAccountPermissions": "the key may not do this",
    "AccountIsDisabled": "the account is disabled",
}


class AzureStore:
    """A container."""

    contract_version = 1
    Options = Azure

    def __init__(self, section: Azure) -> None:
        self._section = section
        self._name = str(section.container)

    @property
    def place(self) -> str:
        return f"azure://{self._name}"

    @property
    def authority(self) -> str:
        return ""

    def probe(self) -> None:
        with self._faults(""):
            self._client.get_container_properties()

    def sign_put(self, key: str) -> SignedRequest:
        return SignedRequest(self._signed(key, write=True), {"x-ms-blob-type": "BlockBlob"})

    def begin_parts(self, key: str) -> str:
        del key  # blocks belong to their blob; nothing has to be begun
        return "blocks"

    def sign_part(self, key: str, upload: str, number: int) -> SignedRequest:
        del upload
        return SignedRequest(f"{self._signed(key, write=True)}&comp=block&blockid={_block(number)}")

    def finish_parts(self, key: str, upload: str, marks: Sequence[str]) -> None:
        from azure.storage.blob import BlobBlock

        del upload
        with self._faults(key):
            blocks = [BlobBlock(_BLOCK_ID % number) for number in range(1, len(marks) + 1)]
            try:
                self._client.get_blob_client(key).commit_block_list(blocks)
            except Exception as error:
                # The blocks of an earlier call, whose answer was lost, are the blob's already.
                if _code(error) != "InvalidBlockList":
                    raise
                self._client.get_blob_client(key).get_blob_properties()

    def abort_parts(self, prefix: str) -> int:
        count = 0
        with self._faults(prefix):
            found = self._client.list_blobs(name_starts_with=prefix, include=["uncommittedblobs"])
            for client in [self._client.get_blob_client(blob.name) for blob in found if not blob.size]:
                if client.exists():
                    continue
                client.commit_block_list([])  # nothing else forgets blocks before a week has passed
                client.delete_blob()
                count += 1
        return count

    def sign_get(self, key: str) -> SignedRequest:
        return SignedRequest(self._signed(key, read=True))

    def read(self, key: str) -> Iterator[bytes]:
        with self._faults(key):
            yield from self._client.get_blob_client(key).download_blob().chunks()

    def copy(self, source: str, target: str, size: int) -> None:
        import time

        del size
        with self._faults(source):
            client = self._client.get_blob_client(target)
            begun = client.start_copy_from_url(self._signed(source, read=True))
            deadline = time.monotonic() + _COPY_WAIT
            status = begun.get("copy_status")
            while status == "pending":
                if time.monotonic() > deadline:
                    client.abort_copy(begun["copy_id"])
                    raise StorageAway(f"{self._where(source)} is being copied too slowly.")
                time.sleep(0.5)
                status = client.get_blob_properties().copy.status
            if status != "success":
                raise StorageAway(f"{self._where(source)} was not copied ({status}).")

    def list(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        with self._faults(prefix):
            for blob in self._client.list_blobs(name_starts_with=prefix):
                if blob.name <= after:  # Azure continues by marks of its own only
                    continue
                yield StoredObject(blob.name, int(blob.size), blob.last_modified.timestamp())

    def delete(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), _AT_ONCE):
            some = keys[begin : begin + _AT_ONCE]
            with self._faults(some[0]):
                for key, answer in zip(some, self._client.delete_blobs(*some, raise_on_any_failure=False), strict=True):
                    if answer.status_code not in (200, 202, 404):
                        raise StorageRefused(f"{self._where(key)} cannot be removed: status {answer.status_code}.")

    # -- inside ------------------------------------------------------------------------------------------------------

    @cached_property
    def _service(self) -> Any:
        from azure.storage.blob import BlobServiceClient  # 0.2 s and 36 MB, for masters with such a storage

        section = self._section
        limits: dict[str, Any] = {"connection_timeout": _CONNECT, "read_timeout": _READ, **_RETRIES}
        if section.connection_string is not None:
            return BlobServiceClient.from_connection_string(section.connection_string, **limits)
        return BlobServiceClient(str(section.account_url), credential=section.credential, **limits)

    @cached_property
    def _client(self) -> Any:
        return self._service.get_container_client(self._name)

    def _signed(self, key: str, *, read: bool = False, write: bool = False) -> str:
        from azure.storage.blob import BlobSasPermissions, generate_blob_sas

        credential = self._service.credential
        secret = getattr(credential, "account_key", None)
        url = str(self._client.get_blob_client(key).url)
        if secret is None:
            if urlsplit(url).query:
                return url  # the site's own signature is the key
            raise StorageRefused(f"{self.place} cannot be used: signing needs the account's key or a signature (SAS).")
        now = dt.datetime.now(dt.UTC)
        signature = generate_blob_sas(
            credential.account_name,
            self._name,
            key,
            account_key=secret,
            permission=BlobSasPermissions(read=read, write=write, create=write),
            start=now - dt.timedelta(seconds=_SLACK),
            expiry=now + dt.timedelta(seconds=VALID),
        )
        return f"{url}?{signature}"

    @contextmanager
    def _faults(self, key: str) -> Iterator[None]:
        """Turn Azure's errors into ours."""
        from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError, ServiceResponseError

        try:
            yield
        except HttpResponseError as error:
            code = _code(error)
            raise self._fault(key, code, error.status_code or 0, str(error.reason or "")) from None
        except (ServiceRequestError, ServiceResponseError, OSError) as error:
            raise StorageAway(f"{self._where(key)} does not answer: {error}.") from None
        except (AzureError, ValueError) as error:
            raise StorageRefused(f"{self._where(key)} cannot be used: {error}.") from None

    def _fault(self, key: str, code: str, status: int, reason: str) -> Exception:
        where = self._where(key)
        if code == "BlobNotFound" or (status == 404 and code != "ContainerNotFound"):
            return NoObject(f"There is no {where}.")
        if status >= 500 or status in (408, 429):
            return StorageAway(f"{where} cannot be used now ({code or status}).")
        why = _WORDS.get(code) or reason or f"status {status}"
        return StorageRefused(f"{where} cannot be used: {why} ({code or status}).")

    def _where(self, key: str) -> str:
        return f"{self.place}/{key}" if key else self.place


def _code(error: Exception) -> str:
    found = getattr(error, "error_code", "") or ""
    return str(getattr(found, "value", found))


def _block(number: int) -> str:
    """Return the id of a block as it stands in an address; the library encodes the one that it commits itself."""
    return quote(base64.b64encode((_BLOCK_ID % number).encode()), safe="")
