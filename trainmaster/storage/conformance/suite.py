"""The tests. A plugin's own test module provides a fixture `store` (an empty bucket of its own) and imports them:

from trainmaster.storage.conformance.suite import *
"""

from __future__ import annotations

import base64
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping

import pytest

from trainmaster.storage.contract import PART, NoObject, ObjectStore, SignedRequest, part_size

KEYS = ("a/plain", "a/deep/er", "a/blank and +%20", "a/ü中", "a/'quote\"", "a/..dots..")
SMALLEST_PART = 5 * 2**20  # of S3


def send(request: SignedRequest, data: bytes, digest: bytes | None = None) -> str:
    """Make a signed upload; return the store's mark for it."""
    md5 = base64.b64encode(digest or hashlib.md5(data, usedforsecurity=False).digest()).decode()
    headers = {**request.headers, "Content-MD5": md5, "Content-Type": ""}
    with urllib.request.urlopen(urllib.request.Request(request.url, data, headers, method="PUT")) as answer:  # noqa: S310
        return str(answer.headers.get("ETag", ""))


def fetch(request: SignedRequest, headers: Mapping[str, str] | None = None) -> bytes:
    """Make a signed download."""
    asked = urllib.request.Request(request.url, headers={**request.headers, **(headers or {})})  # noqa: S310
    with urllib.request.urlopen(asked) as answer:  # noqa: S310
        return bytes(answer.read())


@pytest.mark.parametrize("key", KEYS)
def test_what_is_sent_by_signature_is_listed_read_and_deleted(store: ObjectStore, key: str) -> None:
    send(store.sign_put(key), b"content")
    assert [(found.key, found.size) for found in store.list("a/")] == [(key, 7)]
    assert b"".join(store.read(key)) == b"content"
    assert fetch(store.sign_get(key)) == b"content"
    assert fetch(store.sign_get(key), {"Range": "bytes=2-4"}) == b"nte"
    store.delete([key, "a/never was there"])
    assert list(store.list("a/")) == []


def test_empty_object_is_kept(store: ObjectStore) -> None:
    send(store.sign_put("empty"), b"")
    assert [(found.key, found.size) for found in store.list("empty")] == [("empty", 0)]


def test_object_can_be_replaced(store: ObjectStore) -> None:
    for content in (b"first", b"second"):
        send(store.sign_put("k"), content)
    assert b"".join(store.read("k")) == b"second"


def test_parts_become_one_object_also_when_asked_twice(store: ObjectStore) -> None:
    upload = store.begin_parts("p/large")
    parts = [os.urandom(SMALLEST_PART) for _ in range(3)] + [b"end"]
    marks = [send(store.sign_part("p/large", upload, number), part) for number, part in enumerate(parts, 1)]
    marks[1] = send(store.sign_part("p/large", upload, 2), parts[1])  # a part may come again
    store.finish_parts("p/large", upload, marks)
    store.finish_parts("p/large", upload, marks)
    assert b"".join(store.read("p/large")) == b"".join(parts)
    assert [found.key for found in store.list("p/")] == ["p/large"]


def test_many_parts_keep_their_order(store: ObjectStore) -> None:
    upload = store.begin_parts("p/many")
    first, last = os.urandom(SMALLEST_PART), b"last"
    parts = [*[first] * 3, *([b"%d" % number for number in range(40)] if _takes_small(store) else []), last]
    marks = [send(store.sign_part("p/many", upload, number), part) for number, part in enumerate(parts, 1)]
    store.finish_parts("p/many", upload, marks)
    assert b"".join(store.read("p/many")) == b"".join(parts)


def _takes_small(store: ObjectStore) -> bool:
    """Whether parts in the middle may be small: S3 refuses them."""
    return not store.place.startswith("s3:")


def test_unfinished_parts_are_forgotten(store: ObjectStore) -> None:
    upload = store.begin_parts("u/half")
    send(store.sign_part("u/half", upload, 1), os.urandom(SMALLEST_PART))
    assert store.abort_parts("u/") == 1
    assert store.abort_parts("u/") == 0
    assert list(store.list("u/")) == []


def test_object_is_copied(store: ObjectStore) -> None:
    send(store.sign_put("c/ü from"), b"content")
    store.copy("c/ü from", "c/to", 7)
    assert b"".join(store.read("c/to")) == b"content"
    with pytest.raises(NoObject):
        store.copy("c/nothing", "c/other", 7)


def test_what_is_not_there_is_said(store: ObjectStore) -> None:
    store.probe()
    with pytest.raises(NoObject, match="nothing") as caught:
        list(store.read("nothing"))
    assert store.place in str(caught.value)


def test_list_is_in_order_and_complete(store: ObjectStore) -> None:
    keys = sorted(f"l/{number:04d}" for number in range(1100))  # more than one page of any store
    for key in keys:
        send(store.sign_put(key), b"x")
    assert [found.key for found in store.list("l/")] == keys
    assert [found.key for found in store.list("l/", keys[0])] == keys[1:]
    assert [found.key for found in store.list("l/", f"{keys[0]}!")] == [key for key in keys if key > f"{keys[0]}!"]
    store.delete(keys)
    assert list(store.list("l/")) == []


def test_signature_opens_its_object_only(store: ObjectStore, checks_signatures: bool) -> None:
    """`checks_signatures`: a fixture; false for an emulator that takes everything."""
    if not checks_signatures:
        pytest.skip("this server checks no signatures")
    forged = SignedRequest(store.sign_put("mine").url.replace("/mine", "/yours"), store.sign_put("mine").headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        send(forged, b"x")
    caught.value.close()
    assert caught.value.code == 403
    with pytest.raises(urllib.error.HTTPError) as caught:
        send(store.sign_put("mine"), b"x", hashlib.md5(b"other", usedforsecurity=False).digest())
    caught.value.close()
    assert caught.value.code == 400
    assert list(store.list("")) == []


def test_sizes_of_parts_stay_within_limits() -> None:
    for size in (PART + 1, 10**11, 5 * 10**12):
        assert -(-size // part_size(size)) <= 10_000
        assert part_size(size) % 2**20 == 0
