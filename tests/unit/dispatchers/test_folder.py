"""The job folder: private, complete before it is used, and no path leads out of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trainmaster.dispatchers.base import Rejected, StagedFile, Transient
from trainmaster.dispatchers.cluster.folder import TAIL_BYTES, JobFolder


def test_staging_again_gives_the_same(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "jobs", "det-1")
    for content in (b"one", b"two"):
        folder.stage({"a/b/c": StagedFile(content, 0o640)})
    target = folder.path / "a/b/c"
    assert target.read_bytes() == b"two"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert stat.S_IMODE((folder.path / "a").stat().st_mode) == 0o700
    assert sorted(path.name for path in target.parent.iterdir()) == ["c"]


def test_a_full_or_read_only_disk_is_worth_another_try(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Transient, match="cannot be written"):
        JobFolder(tmp_path / "file", "det-1").stage({})


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x"])
def test_names_outside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected):
        JobFolder(tmp_path, "det-1").stage({name: StagedFile(b"")})


@pytest.mark.parametrize("token", ["", ".", "..", "a/b", "-x", "a" * 65, "a\n"])
def test_tokens_that_could_leave_the_root_are_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(Rejected):
        JobFolder(tmp_path, token)


def test_links_and_pipes_of_the_job_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the master")
    folder = JobFolder(tmp_path / "jobs", "det-1")
    folder.stage({})
    assert folder.collect().output_tail is None  # there is none, and it is not one that may not be read
    (folder.path / "exit/0.json").symlink_to(secret)
    (folder.path / "spool/core.jsonl").symlink_to(secret)
    folder.output.symlink_to(secret)
    os.mkfifo(folder.path / "exit/1.json")
    (folder.path / "exit/not-a-rank.json").write_text("{}")
    remains = folder.collect({})
    assert remains.streams == {}
    assert remains.output_tail == ""
    assert remains.exits in ({}, {1: b""})


def test_forget_removes_links_but_not_their_targets(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder = JobFolder(tmp_path / "jobs", "det-1")
    folder.stage({})
    (folder.path / "link").symlink_to(outside)
    folder.forget()
    folder.forget()
    assert not folder.path.exists()
    assert (outside / "kept").exists()


def test_only_the_end_of_a_long_output_is_read(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "det-1")
    folder.stage({})
    folder.output.write_text("x" * TAIL_BYTES + "the end\n")
    assert len(folder.tail()) == TAIL_BYTES
    assert folder.tail().endswith("the end\n")
