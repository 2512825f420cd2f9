"""The files that come with an experiment are other people's input: what no job could unpack safely is refused."""

from __future__ import annotations

import base64
import tarfile
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.support.api.http import Api
from tests.support.api.jobs import config
from tests.support.api.rows import changes, written
from trainmaster.master.services.errors import TooLarge
from trainmaster.master.services.files.context_archive import MAX_ENTRIES, ContextFile, pack

FILE, FOLDER = ord(tarfile.REGTYPE), ord(tarfile.DIRTYPE)
MEGABYTE = 2**20


def file(path: str, content: bytes = b"x", type: int = FILE, **more: Any) -> dict[str, Any]:
    return {"path": path, "type": type, "content": base64.b64encode(content).decode(), **more}


@pytest.mark.parametrize(
    ("files", "named", "why"),
    [
        ([file("/etc/passwd")], "/etc/passwd", "relative"),
        ([file("//server/share")], "//server/share", "relative"),
        ([file("../x")], "../x", "inside"),
        ([file("a/../../x")], "a/../../x", "inside"),
        ([file("a/..")], "a/..", "inside"),
        ([file("")], "''", "relative"),
        ([file(".")], "'.'", "cannot be a file"),
        ([file("link", type=ord(tarfile.SYMTYPE), linkname="/etc")], "linkname", "modelDefinition.0"),
        ([file("link", type=ord(tarfile.SYMTYPE))], "link", "symbolic link"),
        ([file("hard", type=ord(tarfile.LNKTYPE))], "hard", "hard link"),
        ([file("null", type=ord(tarfile.CHRTYPE))], "null", "device"),
        ([file("disk", type=ord(tarfile.BLKTYPE))], "disk", "device"),
        ([file("fifo", type=ord(tarfile.FIFOTYPE))], "fifo", "pipe"),
        ([file("header", type=ord("x"))], "header", "tar type 120"),
        ([file("train.py", type=-1)], "train.py", "tar type -1"),
        ([file("train.py"), file("train.py")], "train.py", "twice"),
        ([file("train.py"), file("./train.py")], "./train.py", "twice"),
        ([file("a//b"), file("a/b")], "a/b", "twice"),
        ([file("a"), file("a", b"", FOLDER)], "a", "twice"),
        ([file("a"), file("a/b/c")], "a/b/c", "which is a file"),
        ([file("a/b/c"), file("a")], "a/b/c", "which is a file"),
        ([file("x\0y")], r"'x\x00y'", "NUL"),
        ([file("x\ny")], r"x\ny", "printable"),
        ([file("x\x7fy")], r"x\x7fy", "printable"),
        ([file("x\x85y")], r"x\x85y", "printable"),
        ([file("x\u2028y")], r"x\u2028y", "printable"),
        ([file("n" * 256)], "n" * 60, "255"),
        ([file("ü" * 128)], "ü" * 60, "255"),
        ([file("deep/" * 500 + "x")], "deep/deep", "2048"),
        ([{**file("torn"), "content": "eA="}], "torn", "base64"),
        ([{**file("words"), "content": "not base64"}], "words", "base64"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_unsafe_context_file_is_rejected_by_its_path(
    user: Api, engine: Engine, files: list[dict[str, Any]], named: str, why: str
) -> None:
    for part in ({"activate": False}, {"validateOnly": True}):
        before = written(engine)
        answer = user.post("/api/v1/experiments", {"config": config(), "modelDefinition": files, **part})
        assert answer.status == 400, answer.content
        assert named in answer.sentence
        assert why in answer.sentence
        assert not changes(before, written(engine))


def test_half_a_surrogate_pair_is_refused(user: Api, engine: Engine) -> None:
    before = written(engine)
    files = [file("ok.py"), file("\ud800.py")]
    answer = user.post("/api/v1/experiments", {"config": config(), "modelDefinition": files})
    assert answer.status == 400
    assert "modelDefinition.1" in answer.sentence
    assert r"'\ud800.py'" in answer.sentence
    assert not changes(before, written(engine))


def test_context_over_limit_is_refused_naming_file(user: Api, engine: Engine) -> None:
    # Zeros: what is counted is what a job would have on its disk, not what is left when it is compressed.
    half = base64.b64encode(bytes(48 * MEGABYTE)).decode()
    files = [{"path": f"data/{n}.bin", "type": FILE, "content": half} for n in (1, 2)]
    before = written(engine)
    answer = user.post("/api/v1/experiments", {"config": config(), "modelDefinition": files, "activate": False})
    assert answer.status == 413
    assert answer.error["code"] == 8
    assert "data/2.bin" in answer.sentence
    assert "95 MB" in answer.sentence
    assert user.get("/api/v1/master").json["maxContextBytes"] == 95 * MEGABYTE
    assert ".detignore" in answer.sentence
    assert not changes(before, written(engine))


def test_too_many_files_are_refused() -> None:
    files = [ContextFile(f"f{n}", FILE, "", 0, 0o644) for n in range(MAX_ENTRIES + 1)]
    with pytest.raises(TooLarge, match=f"^f{MAX_ENTRIES}: .* more than {MAX_ENTRIES} files"):
        pack(files, 1)


def test_context_may_repeat_folders_and_name_its_top_folder(user: Api) -> None:
    files = [file(".", b"", FOLDER), file("a/", b"", FOLDER), file("a", b"", FOLDER), file("a/b ü.py", mode=0o755)]
    answer = user.post("/api/v1/experiments", {"config": config(), "modelDefinition": files, "activate": False})
    assert answer.status == 200, answer.content
    number = answer.json["experiment"]["id"]
    (top,) = user.get(f"/api/v1/experiments/{number}/file_tree").json["files"]
    assert (top["path"], [child["path"] for child in top["files"]]) == ("a", ["a/b ü.py"])
    user.post(f"/api/v1/experiments/{number}/kill")
