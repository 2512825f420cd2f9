"""Archives of job files: malformed ones are refused, and no link leads outside the folder."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from trainmaster.agent_protocol.archive import BadArchive, content, list_below, open_below, pack, unpack

EVERYTHING = ("",)


def tar(*members: tuple[str, bytes, bytes]) -> io.BytesIO:
    """(name, type, content or target of a link)"""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, data in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(data)
            else:
                member.linkname = data.decode()
            archive.addfile(member, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def test_files_arrive_with_their_modes(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    (source / "hooks").mkdir(parents=True)
    target.mkdir()
    (source / "hooks" / "run").write_bytes(b"x" * 600_000)
    (source / "hooks" / "run").chmod(0o755)
    items = [open_below(source, "hooks/run"), content("empty", b"")]
    archive = io.BytesIO(b"".join(pack(items)))
    assert unpack(archive, target, EVERYTHING, 2**20) == ["hooks/run", "empty"]
    assert (target / "hooks/run").read_bytes() == b"x" * 600_000
    assert (target / "hooks/run").stat().st_mode & 0o777 == 0o700
    assert (target / "empty").read_bytes() == b""
    assert items[0].handle.closed


@pytest.mark.parametrize(
    "members",
    [
        [("../up", tarfile.REGTYPE, b"x")],
        [("/etc/cron.d/x", tarfile.REGTYPE, b"x")],
        [("a/../../up", tarfile.REGTYPE, b"x")],
        [("a//b", tarfile.REGTYPE, b"x")],
        [("line\nend", tarfile.REGTYPE, b"x")],
        [("link", tarfile.SYMTYPE, b"/etc/passwd")],
        [("hard", tarfile.LNKTYPE, b"/etc/passwd")],
        [("device", tarfile.CHRTYPE, b"")],
        [("pipe", tarfile.FIFOTYPE, b"")],
        [("folder", tarfile.DIRTYPE, b"")],
        [("x" * 600, tarfile.REGTYPE, b"x")],
        [("large", tarfile.REGTYPE, b"x" * 2000)],
    ],
)
def test_malicious_archive_members_are_refused(tmp_path: Path, members: list[tuple[str, bytes, bytes]]) -> None:
    target = tmp_path / "to"
    target.mkdir()
    with pytest.raises(BadArchive):
        unpack(tar(*members), target, EVERYTHING, 1000)
    assert list(target.iterdir()) == []
    assert not (tmp_path / "up").exists()


def test_unexpected_archive_members_are_refused(tmp_path: Path) -> None:
    allowed = ("exit/0.json", "spool/")
    assert unpack(tar(("spool/core.jsonl", tarfile.REGTYPE, b"")), tmp_path, allowed, 10) == ["spool/core.jsonl"]
    for name in ("exit/1.json", "secrets/token", "spool", ".docker/job.json"):
        with pytest.raises(BadArchive, match="not expected"):
            unpack(tar((name, tarfile.REGTYPE, b"")), tmp_path, allowed, 10)


def test_noise_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="cannot be read"):
        unpack(io.BytesIO(os.urandom(2000)), tmp_path, EVERYTHING, 10)


def test_a_file_that_shrinks_on_the_way_keeps_the_archive_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    pieces = pack([open_below(tmp_path, "a"), content("b", b"after")])
    first = next(pieces)
    (tmp_path / "a").write_bytes(b"x")
    target = tmp_path / "to"
    target.mkdir()
    assert unpack(io.BytesIO(first + b"".join(pieces)), target, EVERYTHING, 2000) == ["a", "b"]
    assert (target / "b").read_bytes() == b"after"


def test_links_on_the_way_are_not_followed(tmp_path: Path) -> None:
    outside, job = tmp_path / "outside", tmp_path / "job"
    outside.mkdir()
    job.mkdir()
    (outside / "0.json").write_text("secret")
    (job / "exit").symlink_to(outside)
    (job / "file").symlink_to(outside / "0.json")
    os.mkfifo(job / "pipe")
    assert list_below(job, "exit") == []
    for name in ("exit/0.json", "file", "pipe"):
        with pytest.raises(OSError, match=r".+"):
            open_below(job, name)
    (job / "own").write_text("mine")
    with pytest.raises(OSError, match="is not a plain file of the job"):
        open_below(job, "own", os.geteuid() + 1)
