"""A checkpoint's files as an archive by the master; never somebody else's."""

from __future__ import annotations

import io
import os
import tarfile
import time
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job
from trainmaster.master.services.removal.checkpoint_files import _stays

WEIGHTS = os.urandom(700_000)


@pytest.fixture
def job(keeping: Job) -> Job:
    return keeping


@pytest.fixture
def save(job: Job, root: Path) -> Callable[..., str]:
    """Report a checkpoint that lies in `root`, or in another storage."""

    def save(**storage: str) -> str:
        found = storage.pop("key", str(uuid.uuid4()))
        where = storage or {"type": "directory", "container_path": f"{root}/."}
        record = {"t": time.time(), "kind": "checkpoint", "uuid": found, "steps_completed": 1, "resources": {}}
        answer = job.send([record | {"metadata": {"steps_completed": 1}, "storage": where}])
        assert answer.status == 200, answer.content
        return found

    return save


def fetch(api: Api, key: str, accept: str = "*/*") -> Answer:
    return api.call("GET", f"/checkpoints/{key}", headers={"Accept": accept})


def unpacked(content: bytes) -> dict[str, bytes | str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        found: dict[str, bytes | str] = {}
        for member in opened.getmembers():
            file = opened.extractfile(member) if member.isreg() else None
            found[member.name] = file.read() if file else member.linkname
        return found


def test_all_files_and_no_link_to_elsewhere(user: Api, root: Path, save: Callable[..., str]) -> None:
    folder = root / save()
    (folder / "below").mkdir(parents=True)
    (folder / "weights").write_bytes(WEIGHTS)
    (folder / "below" / "more").write_text("more")
    (folder / "link").symlink_to("below/more")
    (folder / "away").symlink_to("/etc/hostname")
    (folder / "up").symlink_to("../weights")
    os.mkfifo(folder / "pipe")
    whole = {"weights": WEIGHTS, "below": "", "below/more": b"more", "link": "below/more"}
    for accept in ("application/gzip", "application/x-tar", "*/*"):
        assert unpacked(fetch(user, folder.name, accept).content) == whole
    answer = fetch(user, folder.name, "text/html, application/zip;q=0.9")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as opened:
        found = {name: opened.read(name) for name in opened.namelist()}
    assert found == {"weights": WEIGHTS, "below/": b"", "below/more": b"more"}


def test_error_says_why_checkpoint_files_are_unavailable(
    user: Api, anonymous: Api, root: Path, save: Callable[..., str]
) -> None:
    gone, bucket = save(), save(type="s3", bucket="b")
    for key, status, words in (
        (gone, 404, "as this master sees it"),
        (bucket, 503, "from its storage yourself"),
        (str(uuid.uuid4()), 404, "no checkpoint"),
        ("x", 400, "UUID"),
    ):
        answer = fetch(user, key)
        assert (answer.status, words in answer.sentence) == (status, True)
    assert fetch(anonymous, gone).status == 401
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret")
    linked = save()
    (root / linked).symlink_to(elsewhere)
    assert fetch(user, linked).status == 503


# Only root can leave a file that the master's own account may not read.
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: files of two accounts are needed")
def test_file_of_another_account_ends_archive(user: Api, root: Path, save: Callable[..., str]) -> None:
    folder = root / save()
    folder.mkdir()
    secret = root / "secret"
    secret.write_text("secret")
    os.chown(secret, 12345, 12345)
    os.link(secret, folder / "linked")
    answer = fetch(user, folder.name, "application/x-tar")
    assert b"secret" not in answer.content
    os.chown(folder, 12345, 12345)
    answer = fetch(user, folder.name)
    assert (answer.status, "belongs to uid 12345" in answer.sentence) == (503, True)


@pytest.mark.parametrize(
    ("place", "target", "stays"),
    [("a", "b", True), ("a/b", "../c", True), ("a", "../a", False), ("a/b", "../../x", False), ("a", "/etc", False)],
)
def test_links_that_stay(place: str, target: str, stays: bool) -> None:
    assert _stays(place, target) is stays
