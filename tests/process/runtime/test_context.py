"""Context archives, well-meant and not."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from trainmaster.master.services.files.archives import SMALL, listed
from trainmaster.runtime.context import write_files
from trainmaster.runtime.errors import BadContext
from trainmaster.runtime.untar import unpack_context


def pack(*entries: Any) -> Any:
    """Entries are (name, content) or (name, type, link target)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry[0])
            if len(entry) == 2:
                info.size = len(entry[1])
                info.mode = 0o4755
                archive.addfile(info, io.BytesIO(entry[1]))
            else:
                info.type, info.linkname = entry[1], entry[2]
                archive.addfile(info)
    return packed.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Any:
    folder = tmp_path / "outer" / "context"
    folder.mkdir(parents=True)
    return folder


def test_files_folders_and_links_are_unpacked(target: Any) -> None:
    archive = pack(
        ("a", tarfile.DIRTYPE, ""),
        ("./a/train.py", b"print(1)"),
        ("b/c/deep.txt", b"deep"),
        ("link", tarfile.SYMTYPE, "a/train.py"),
        ("b/up", tarfile.SYMTYPE, "../a"),
        ("hard", tarfile.LNKTYPE, "b/c/deep.txt"),
    )
    assert unpack_context(archive, str(target)) == 6
    assert (target / "link").read_bytes() == b"print(1)"
    assert (target / "b" / "up" / "train.py").read_bytes() == b"print(1)"
    assert (target / "hard").read_bytes() == b"deep"
    assert (target / "a" / "train.py").stat().st_mode & 0o7777 == 0o755


def test_an_empty_context_is_fine(target: Any) -> None:
    assert unpack_context(b"", str(target)) == 0


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("../evil", b"x")], "leads out"),
        ([("a/../../evil", b"x")], "leads out"),
        ([("/tmp/evil", b"x")], "absolute"),
        ([("link", tarfile.SYMTYPE, "../..")], "leads out"),
        ([("link", tarfile.SYMTYPE, "/etc/passwd")], "leads out"),
        ([("hard", tarfile.LNKTYPE, "../../secret")], "leads out"),
        ([("hard", tarfile.LNKTYPE, "/etc/passwd")], "absolute"),
        ([("hard", tarfile.LNKTYPE, "nothing")], "leads to no file"),
        ([("dev", tarfile.CHRTYPE, "")], "device"),
        ([("fifo", tarfile.FIFOTYPE, "")], "device"),
        ([("link", tarfile.SYMTYPE, ".."), ("link/evil", b"x")], "cannot be unpacked"),
        # A chain of links that lead out only together.
        ([("z", tarfile.SYMTYPE, "x/y/.."), ("x/y", tarfile.SYMTYPE, "..")], "leads out"),
        ([("a/b", tarfile.SYMTYPE, "."), ("a/b/c", tarfile.SYMTYPE, "../../..")], "leads out"),
    ],
)
def test_unsafe_archive_entries_are_rejected(target: Any, entries: Any, words: str) -> None:
    with pytest.raises(BadContext, match=words):
        unpack_context(pack(*entries), str(target))
    assert sorted(os.listdir(target.parent)) == ["context"]


def test_a_bomb_is_refused(target: Any) -> None:
    with pytest.raises(BadContext, match="more than 1000 bytes"):
        unpack_context(pack(("zeros", b"\0" * 2000)), str(target), max_bytes=1000)
    with pytest.raises(BadContext, match="more than 2 entries"):
        unpack_context(pack(("a", b""), ("b", b""), ("c", b"")), str(target), max_entries=2)


@pytest.mark.parametrize("garbage", [b"%%%", b"\0\0\0", b"\x1f\x8b no gzip"])
def test_garbage_is_refused(target: Any, garbage: bytes) -> None:
    with pytest.raises(BadContext):
        unpack_context(garbage, str(target))


def test_a_truncated_archive_is_refused(target: Any) -> None:
    whole = pack(("big", os.urandom(100_000)))
    with pytest.raises(BadContext):
        unpack_context(whole[:50_000], str(target))


def header(name: Any, **fields: Any) -> Any:
    """The header of an entry whose number fields are written without a look at what is true."""
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("tar", "words"),
    [
        (header("liar", size=10**6) + b"x" * 512, "cannot be unpacked"),
        (header("ahead", size=0) + header("back", size=-1024), "'back' has a size below zero"),
        (header("long", size=10**15) + b"x" * 512, "unpacks to more than"),
        (header("late", mtime=2**70), "cannot be unpacked"),
        (b"\0" * 2**21, "continues after its end"),
    ],
)
def test_headers_that_lie_are_refused(target: Any, tar: Any, words: str) -> None:
    with pytest.raises(BadContext, match=words):
        unpack_context(gzip.compress(tar + b"\0" * 1024), str(target))


def test_compressed_data_with_a_wrong_byte_is_refused(target: Any) -> None:
    whole = bytearray(pack(("big", os.urandom(100_000))))
    for place in range(2_000, len(whole), 10_000):
        broken = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        with pytest.raises(BadContext):
            unpack_context(bytes(broken), str(target))
    fixed = zlib.compressobj(wbits=31)
    start = fixed.compress(b"x" * 2000) + fixed.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(BadContext):
        unpack_context(start + b"\xff" * 1000, str(target))


def test_bad_context_is_named_in_exit_and_log(stage: Any) -> None:
    job, master = stage("echo never", context=pack(("../evil", b"x")))
    status, _ = job.run()
    assert status == 70
    assert "'../evil' leads out" in master.exits[0]["message"]
    assert any("leads out" in line for line in master.lines(source="runtime"))


def test_context_files_are_requested_again_after_503(stage: Any) -> None:
    job, master = stage("cat a", context=pack(("a", b"here")))
    master.apart, master.answer_status["context"] = True, 503
    process = job.start()
    master.wait(lambda: master.requests.count("GET /api/x1/allocations/3.7.1/context") > 1)
    del master.answer_status["context"]
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "here" in master.lines()


@pytest.mark.parametrize(("says", "message"), [(404, "refused"), (503, "did not come within 1 s")])
def test_without_its_files_a_job_does_not_begin(stage: Any, says: int, message: str) -> None:
    job, master = stage("echo never", context=pack(("a", b"")), lease_patience=1)
    master.apart, master.answer_status["context"] = True, says
    status, _ = job.run()
    assert status == 75
    assert message in master.exits[0]["message"]
    assert not master.exits[0]["began"]


def test_files_that_did_not_come_with_the_lease_are_fetched(stage: Any) -> None:
    job, master = stage("cat a", context=pack(("a", b"here")))
    master.apart = True
    assert job.run()[0] == 0
    assert master.lines() == ["here"]


def test_lease_with_undecodable_file_ends_job_with_error(stage: Any) -> None:
    job, master = stage("echo never")
    spoilt = {"path": "a", "mode": 0o644, "mtime": 0, "content": "%%%"}
    master._lease = lambda body: (200, {**master.work, "files": [spoilt], "context_size": 3})
    status, _ = job.run()
    assert (status, master.exits[0]["message"]) == (
        70,
        "the context entry 'a' cannot be written: the content is not base64",
    )


def test_small_files_are_written_as_archive_would_write_them(target: Any) -> None:
    archive = pack(("a", tarfile.DIRTYPE, ""), ("./a/train.py", b"print(1)"), ("empty", b""), ("empty", b"later"))
    files = listed(archive)
    assert files is not None
    write_files(files, str(target))
    other = target.parent / "other"
    other.mkdir()
    unpack_context(archive, str(other))
    for path in ("a/train.py", "empty"):
        by_list, by_archive = target / path, other / path
        assert by_list.read_bytes() == by_archive.read_bytes()
        assert by_list.stat().st_mode == by_archive.stat().st_mode
        assert by_list.stat().st_mtime == by_archive.stat().st_mtime
    assert (target / "empty").read_bytes() == b"later"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"path": "../evil", "content": ""}, "leads out"),
        ({"path": "/tmp/evil"}, "absolute"),
        ({"path": "a\0b"}, "absolute"),
        ({"path": 7}, "entry 7 cannot be written"),
        ({"content": ""}, "entry None cannot be written"),
        ({"path": "a", "content": "YQ==", "mode": "rwx", "mtime": 0}, "'a' cannot be written"),
        ({"path": "a", "content": "YQ==", "mode": 0o644, "mtime": 2**70}, "'a' cannot be written"),
        ({"path": ".", "content": "YQ==", "mode": 0o644, "mtime": 0}, "'.' cannot be written"),
    ],
)
def test_a_list_of_files_that_makes_no_sense_is_refused(target: Any, entry: Any, words: str) -> None:
    with pytest.raises(BadContext, match=words):
        write_files([entry], str(target))
    assert sorted(os.listdir(target.parent)) == ["context"]


@pytest.mark.parametrize(
    "archive",
    [
        pack(("link", tarfile.SYMTYPE, "a")),
        pack(("fifo", tarfile.FIFOTYPE, "")),
        pack(("zeros", b"\0" * SMALL)),
        pack(*((f"{number}", b"") for number in range(1000))),
        gzip.compress(b"\0" * 2**26),
        pack(("a", b"1")) + pack(("b", b"2")),
        pack(("a", os.urandom(1000)))[:-20],
        b"no archive",
        b"",
        None,
    ],
    ids=["link", "pipe", "large", "many", "bomb", "two", "cut off", "none", "empty", "absent"],
)
def test_unusual_context_is_left_to_runtime(archive: Any) -> None:
    assert listed(archive) is None


def test_headers_that_lie_are_not_listed() -> None:
    for tar in (
        header("ahead", size=0) + header("back", size=-1024),
        header("sparse", type=tarfile.GNUTYPE_SPARSE, size=10**9) + b"x" * 512,
        header("liar", size=10**5) + b"x" * 512,
    ):
        assert listed(gzip.compress(tar + b"\0" * 1024)) is None
