"""Amazon S3, and what speaks its protocol: Ceph, MinIO, and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from trainmaster.config.storage import S3
from trainmaster.storage.contract import (
    VALID,
    NoObject,
    SignedRequest,
    StorageAway,
    StorageRefused,
    StoredObject,
    part_size,
)

_REGION = "us-east-1"  # what other servers than Amazon's take for theirs
_LARGEST_COPY = 5 * 2**30  # bytes that one request copies
_AT_ONCE = 1000  # keys of one request to delete
_BLOCK = 1 << 20  # bytes
_CONNECT, _READ = 10, 60  # seconds

_WORDS = {
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "the key may not do this",
    "InvalidAccessKeyId": "the access key is unknown there",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "ExpiredToken": "the key has expired",
    "RequestTimeTooSkewed": "the clocks of the store and of the master differ by more than the store allows",
    "QuotaExceeded": "its quota is used up",
}
_MISSING = ("NoSuchKey", "404", "NotFound")
_LATER = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "OperationAborted")


class S3Store:
    """A bucket."""

    contract_version = 1
    Options = S3

    def __init__(self, section: S3) -> None:
        self._section = section
        self._bucket = str(section.bucket)

    @property
    def place(self) -> str:
        return f"s3://{self._bucket}"

    @cached_property
    def authority(self) -> str:
        return Path(self._section.ca_file).read_text() if self._section.ca_file else ""

    def probe(self) -> None:
        with self._faults(""):
            self._client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)

    def sign_put(self, key: str) -> SignedRequest:
        return self._signed("put_object", key)

    def begin_parts(self, key: str) -> str:
        with self._faults(key):
            return str(self._client.create_multipart_upload(Bucket=self._bucket, Key=key)["UploadId"])

    def sign_part(self, key: str, upload: str, number: int) -> SignedRequest:
        return self._signed("upload_part", key, UploadId=upload, PartNumber=number)

    def finish_parts(self, key: str, upload: str, marks: Sequence[str]) -> None:
        parts = [{"PartNumber": number, "ETag": mark} for number, mark in enumerate(marks, 1)]
        try:
            with self._faults(key):
                self._client.complete_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
                )
        except _NoUpload:
            # The answer to an earlier call was lost.
            with self._faults(key):
                self._client.head_object(Bucket=self._bucket, Key=key)

    def abort_parts(self, prefix: str) -> int:
        count = 0
        # Gone: another call was faster; rclone's server also says so where there are none.
        with suppress(_NoUpload), self._faults(prefix):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            for upload in [upload for page in pages for upload in page.get("Uploads", ())]:
                if str(upload["Key"]).startswith(prefix):
                    self._abort(upload)
                    count += 1
        return count

    def _abort(self, upload: Mapping[str, Any]) -> None:
        with suppress(_NoUpload), self._faults(upload["Key"]):
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def sign_get(self, key: str) -> SignedRequest:
        return self._signed("get_object", key)

    def read(self, key: str) -> Iterator[bytes]:
        with self._faults(key):
            body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
            yield from body.iter_chunks(_BLOCK)

    def copy(self, source: str, target: str, size: int) -> None:
        origin = {"Bucket": self._bucket, "Key": source}
        with self._faults(source):
            if size <= _LARGEST_COPY:
                self._client.copy_object(Bucket=self._bucket, Key=target, CopySource=origin)
                return
            upload = self.begin_parts(target)
            step = max(part_size(size), _LARGEST_COPY // 5)
            marks = []
            for number, begin in enumerate(range(0, size, step), 1):
                answer = self._client.upload_part_copy(
                    Bucket=self._bucket,
                    Key=target,
                    CopySource=origin,
                    CopySourceRange=f"bytes={begin}-{min(begin + step, size) - 1}",
                    UploadId=upload,
                    PartNumber=number,
                )
                marks.append(str(answer["CopyPartResult"]["ETag"]))
        self.finish_parts(target, upload, marks)

    def list(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        with self._faults(prefix):
            begin = {"StartAfter": after} if after else {}
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix, **begin)
            for page in pages:
                for entry in page.get("Contents", ()):
                    yield StoredObject(entry["Key"], int(entry["Size"]), entry["LastModified"].timestamp())

    def delete(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), _AT_ONCE):
            some = [{"Key": key} for key in keys[begin : begin + _AT_ONCE]]
            with self._faults(keys[begin]):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
            for fault in answer.get("Errors", ()):
                raise self._fault(str(fault.get("Key")), str(fault.get("Code")), str(fault.get("Message")), 403)

    # -- inside ------------------------------------------------------------------------------------------------------

    @cached_property
    def _client(self) -> Any:
        import boto3  # 0.3 s and 40 MB, for masters with such a storage
        from botocore.config import Config

        section = self._section
        return boto3.session.Session().client(
            "s3",
            aws_access_key_id=section.access_key,
            aws_secret_access_key=section.secret_key,
            endpoint_url=section.endpoint_url,
            region_name=section.region or (_REGION if section.endpoint_url else None),
            verify=section.ca_file,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": section.addressing or ("path" if section.endpoint_url else "auto")},
                connect_timeout=_CONNECT,
                read_timeout=_READ,
                retries={"mode": "standard", "max_attempts": 3},
                # Not every server knows the checksums that Amazon added in 2025.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def _signed(self, operation: str, key: str, **more: Any) -> SignedRequest:
        with self._faults(key):
            url = self._client.generate_presigned_url(
                operation, {"Bucket": self._bucket, "Key": key, **more}, ExpiresIn=VALID
            )
        return SignedRequest(str(url))

    @contextmanager
    def _faults(self, key: str) -> Iterator[None]:
        """Turn botocore's errors into ours."""
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

        try:
            yield
        except ClientError as error:
            said = error.response.get("Error", {})
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            raise self._fault(key, str(said.get("Code")), str(said.get("Message", "")), status) from None
        except (ConnectionError, HTTPClientError, OSError) as error:
            raise StorageAway(f"{self._where(key)} does not answer: {error}.") from None
        except BotoCoreError as error:
            raise StorageRefused(f"{self._where(key)} cannot be used: {error}.") from None

    def _fault(self, key: str, code: str, message: str, status: int) -> Exception:
        where = self._where(key)
        if code == "NoSuchUpload":
            return _NoUpload(f"{where}: there is no such upload any more.")
        if code in _MISSING:
            return NoObject(f"There is no {where}.")
        if code in _LATER or status >= 500 or status == 429:
            return StorageAway(f"{where} cannot be used now ({code}).")
        why = _WORDS.get(code) or (message.rstrip(".") if message else f"status {status}")
        return StorageRefused(f"{where} cannot be used: {why} ({code}).")

    def _where(self, key: str) -> str:
        return f"{self.place}/{key}" if key else self.place


class _NoUpload(StorageRefused):
    pass
