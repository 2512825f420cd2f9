"""Requests to an object store by signed addresses: what its answers mean, and when to ask again."""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, Mapping, Optional, Tuple, TypeVar, Union

from trainmaster.core.errors import CheckpointError, UnusableStorage
from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.connection import Answer, Connection, FilePart
from trainmaster.runtime.record import Record
from trainmaster.runtime.url import split_url

T = TypeVar("T")

PATIENCE = 1800.0  # seconds for which a store may be away
_TIMEOUT = 60.0  # seconds of each wait on the network
_LATER = (408, 425, 429, 500, 502, 503, 504)
_STALE = ("expired", "request has expired", "authenticationfailed", "signaturedoesnotmatch", "requesttimetooskewed")
_FOR_GOOD = ("NoSuchBucket", "ContainerNotFound", "AccessDenied")
_WORDS = {
    "NoSuchBucket": "there is no such bucket",
    "ContainerNotFound": "there is no such container",
    "AccessDenied": "the master's key may not do this",
    "QuotaExceeded": "its quota is used up",
    "EntityTooLarge": "it takes no file of this size",
    "RequestTimeTooSkewed": "the clocks of the store and of the master differ by more than the store allows",
    "SignatureDoesNotMatch": "the master's key is wrong",
}


class Signed(Record):
    """A request that the master has signed."""

    url: str
    headers: Mapping[str, str]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Signed:
        return cls(answer["url"], answer.get("headers") or {})


class Stale(Exception):
    """The signature holds no longer: ask the master for another one."""


class Gone(Exception):
    """What the request is about is not there."""


class _Later(Exception):
    """The store does not answer, or asks to come back; the message says how."""

    def __init__(self, message: str, retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreRequests:
    """Keep-alive connections to a store, one for each thread and host. Thread-safe.

    Args:
        authority: Certificates (PEM) that its own is checked by; empty: those that the machine trusts.
        stopped: Whether there is no need to continue.
    """

    def __init__(self, authority: str = "", stopped: Callable[[], bool] = lambda: False) -> None:
        self._authority = authority
        self._stopped = stopped
        self._local = threading.local()

    def put(self, signed: Signed, part: Union[FilePart, bytes], md5: bytes) -> str:
        """Send one object, or one part of it; again while the store is away, for at most `PATIENCE` seconds.

        Args:
            signed: The request.
            part: The bytes.
            md5: Their digest, by which the store checks what has arrived.

        Returns:
            The store's mark for the part (`ETag`).

        Raises:
            Stale: The signature holds no longer.
            CheckpointError: The store refuses, or was away for too long.
        """
        headers = {**signed.headers, "Content-MD5": base64.b64encode(md5).decode()}
        answer = _patiently(lambda: self._once("PUT", signed, headers, part, None), self._stopped)
        return answer.headers.get("etag", "")

    def get(self, signed: Signed, into: BinaryIO, end: int) -> None:
        """Write the bytes from the file's position up to `end` (excluded) to the same place in the file; after a lost
        connection, from where it broke off.

        Raises:
            Stale: The signature holds no longer.
            Gone: There is no such object.
            CheckpointError: The store refuses, or was away for too long.
        """

        def once() -> None:
            done = into.tell()
            if done >= end:
                return
            wanted = {**signed.headers, "Range": "bytes=%d-%d" % (done, end - 1)}
            answer = self._once("GET", signed, wanted, None, into)
            # Not by the status: rclone's server answers 200.
            if done and not answer.headers.get("content-range", "").startswith("bytes %d-" % done):
                raise CheckpointError("%s sends no parts of objects" % _shown(signed.url))
            if into.tell() < end:
                raise _Later("%s: the answer breaks off" % _shown(signed.url))

        _patiently(once, self._stopped)

    def close(self) -> None:
        """Close this thread's connections."""
        for connection in self._kept().values():
            connection.close()
        self._kept().clear()

    def _kept(self) -> Dict[Tuple[str, str, int], Connection]:
        kept: Optional[Dict[Tuple[str, str, int], Connection]] = getattr(self._local, "connections", None)
        if kept is None:
            kept = self._local.connections = {}
        return kept

    def _once(
        self,
        method: str,
        signed: Signed,
        headers: Mapping[str, str],
        body: Union[FilePart, bytes, None],
        into: Optional[BinaryIO],
    ) -> Answer:
        parts = split_url(signed.url)
        place = (parts.scheme, parts.host, parts.port)
        kept = self._kept()
        target = "/" + signed.url.partition("://")[2].partition("/")[2]
        fresh = place not in kept
        try:
            if fresh:
                kept[place] = Connection(parts.host, parts.port, _TIMEOUT, self._wrap(*place))
            answer = kept[place].request(method, target, headers, body, _TIMEOUT, into)
        except OSError as error:
            self._drop(place)
            if not fresh and into is None:
                return self._once(method, signed, headers, body, into)  # it was closed while it was not used
            raise _Later("%s cannot be reached: %s" % (_shown(signed.url), error or type(error).__name__)) from None
        except BaseException:
            self._drop(place)
            raise
        if not answer.kept:
            self._drop(place)
        if 200 <= answer.status < 300:
            return answer
        raise _fault(signed.url, answer)

    def _drop(self, place: Tuple[str, str, int]) -> None:
        connection = self._kept().pop(place, None)
        if connection is not None:
            connection.close()

    def _wrap(self, scheme: str, host: str, _: int) -> Optional[Callable[[socket.socket], Any]]:
        if scheme != "https":
            return None
        import ssl  # absent from some minimal Pythons, and needed only here

        context = ssl.create_default_context(cadata=self._authority or None)
        return lambda plain: context.wrap_socket(plain, server_hostname=host)


def _patiently(ask: Callable[[], T], stopped: Callable[[], bool]) -> T:
    """Ask until the store answers, for at most `PATIENCE` seconds. Raises CheckpointError."""
    deadline = time.monotonic() + PATIENCE
    backoff = Backoff()
    while True:
        try:
            return ask()
        except _Later as error:
            wait = backoff.next(error.retry_after)
            if stopped() or time.monotonic() + wait > deadline:
                raise CheckpointError("%s" % error) from None
            time.sleep(wait)


def _fault(url: str, answer: Answer) -> Exception:
    """Say what a store's refusal means. S3, Google and Azure answer with XML that has a `Code`."""
    text = answer.body[:4000].decode("utf-8", "replace")
    found = re.search(r"<Code>([^<]{1,100})</Code>", text)
    code = found.group(1) if found else ""
    where = _shown(url)
    if answer.status in _LATER or code in ("SlowDown", "RequestTimeout", "BadDigest", "Md5Mismatch"):
        return _Later("%s answers %d %s" % (where, answer.status, code), answer.retry_after)
    if answer.status in (401, 403) and any(word in text.lower() for word in _STALE):
        why = _WORDS.get(code) or "the signature holds no longer"
        return Stale("%s cannot be used: %s (%s)" % (where, why, code))
    if answer.status == 404 and code in ("NoSuchKey", "BlobNotFound", ""):
        return Gone("there is no %s" % where)
    why = _WORDS.get(code) or "status %d" % answer.status
    kind = UnusableStorage if code in _FOR_GOOD else CheckpointError
    return kind("%s cannot be used: %s%s" % (where, why, " (%s)" % code if code else ""))


def _shown(url: str) -> str:
    """Return an address without its query, which is the signature."""
    return url.partition("?")[0]
