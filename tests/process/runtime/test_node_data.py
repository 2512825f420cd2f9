"""Data on the node's own disk: one copy for all jobs of an account, made under a lock and within a bound."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.master import wait_for
from trainmaster.core.node_data import cache as caches
from trainmaster.core.node_data.cache import Held, NodeCache
from trainmaster.core.node_data.errors import DataFault, Stopped
from trainmaster.core.node_data.sources import source_of


def no_pages(_: Mapping[str, str]) -> Mapping[str, Any]:
    raise AssertionError("the master is asked for files of a folder")


class Node:
    """A node with its cache, and what jobs log there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.stopped = threading.Event()
        self.limit: int | None = None

    def cache(self) -> NodeCache:
        return NodeCache(str(self.folder), self.limit, self.lines.append, self.stopped.is_set)

    def hold(self, source: Path, unpack: bool = True, keep: bool = True) -> Held:
        return self.cache().hold("set", source_of(str(source), unpack, no_pages), keep)

    def copies(self) -> list[str]:
        base = self.folder / f"trainmaster-{os.geteuid()}"
        return sorted(path.name for path in base.iterdir() if path.name != "locks")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "node"
    folder.mkdir()
    return Node(folder)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder on the shared file system."""
    folder = tmp_path / "shared" / "set"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.bin").write_bytes(bytes(1000))
    (folder / "deep" / "two ü.bin").write_bytes(bytes(2000))
    (folder / "link").symlink_to("one.bin")
    (folder / "loop").symlink_to(folder)
    (folder / "nowhere").symlink_to("absent")
    return folder


def test_folder_is_copied_once_and_found_by_other_jobs(node: Node, shared: Path) -> None:
    first = node.hold(shared)
    content = Path(first.content)
    assert {str(path.relative_to(content)) for path in content.rglob("*") if path.is_file()} == {
        "one.bin",
        "deep/two ü.bin",
        "link",
    }
    assert (content / "deep" / "two ü.bin").read_bytes() == bytes(2000)
    assert oct((content / "one.bin").stat().st_mode & 0o777) == "0o444"
    assert (content / "one.bin").stat().st_mtime_ns == (shared / "one.bin").stat().st_mtime_ns
    second = node.hold(shared)
    assert (first.reused, second.reused, second.folder) == (False, True, first.folder)
    assert node.lines[0].startswith("data set: copied 4 kB in 3 files from ")
    assert "is on this node already (4 kB)" in node.lines[1]


def test_changed_source_is_another_copy_that_shares_what_is_alike(node: Node, shared: Path) -> None:
    first = node.hold(shared)
    (shared / "deep" / "two ü.bin").write_bytes(bytes(3000))
    second = node.hold(shared)
    assert second.folder != first.folder
    assert (Path(first.content) / "deep" / "two ü.bin").stat().st_size == 2000, "a copy in use has changed"
    assert os.path.samefile(f"{first.content}/one.bin", f"{second.content}/one.bin")
    assert node.lines[-1].endswith("2 were on this node already")
    os.close(first.lock)
    (shared / "one.bin").write_bytes(bytes(5))
    third = node.hold(shared)
    assert node.copies() == sorted(os.path.basename(one.folder) for one in (second, third)), "the oldest is not used"


def test_file_and_archives(node: Node, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    held = node.hold(tmp_path / "a.txt")
    assert (Path(held.content) / "a.txt").read_text() == "a"
    for ending, mode in (("tar", "w"), ("tar.gz", "w:gz")):
        packed = tmp_path / f"x.{ending}"
        with tarfile.open(packed, mode) as tar:  # type: ignore[call-overload]
            tar.add(tmp_path / "a.txt", "deep/a.txt")
            tar.add(tmp_path / "a.txt", "deep/a.txt")  # the later one holds
            link = tarfile.TarInfo("deep/link")
            link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
            tar.addfile(link)
            outside = tarfile.TarInfo("passwd")
            outside.type, outside.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(outside)
            device = tarfile.TarInfo("device")
            device.type = tarfile.CHRTYPE
            tar.addfile(device)
        content = Path(node.hold(packed).content)
        assert sorted(str(path.relative_to(content)) for path in content.rglob("*")) == [
            "deep",
            "deep/a.txt",
            "deep/link",
        ]
        assert (content / "deep" / "link").read_text() == "a"
        assert [path.name for path in Path(node.hold(packed, unpack=False).content).iterdir()] == [packed.name]
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed_zip:
        packed_zip.writestr("deep/b.txt", "b")
    assert (Path(node.hold(tmp_path / "x.zip").content) / "deep" / "b.txt").read_text() == "b"


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_archive_that_leads_out_of_its_folder_is_refused(node: Node, tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(DataFault, match="leads out of it"):
        node.hold(tmp_path / "x.tar")


def test_what_cannot_be_read_is_named(node: Node, tmp_path: Path) -> None:
    with pytest.raises(DataFault, match=r"absent cannot be read on this node: No such file or directory"):
        node.hold(tmp_path / "absent")
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataFault, match=r"x\.tar\.gz cannot be unpacked"):
        node.hold(tmp_path / "x.tar.gz")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataFault, match="neither a folder nor a file"):
        node.hold(tmp_path / "pipe")


def test_limit_makes_room_from_what_no_job_uses_the_longest_unused_first(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = []
    for name in "abcd":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(bytes(1000))
        sets.append(tmp_path / name)
    monkeypatch.setattr(caches, "_POLL", 0.01)
    monkeypatch.setattr(caches, "PATIENCE", 0.1)
    node.limit = 2500
    first, second = node.hold(sets[0]), node.hold(sets[1])
    os.utime(Path(first.folder) / "entry.json", (1, 1))
    with pytest.raises(DataFault, match=r"c needs 1 kB on this node, and .* has room for 500 B: jobs that run use"):
        node.hold(sets[2])
    assert node.lines[-1].endswith("has room for 500 B: waiting for jobs that use the rest")
    monkeypatch.setattr(caches, "PATIENCE", 60)
    threading.Timer(0.3, os.close, [second.lock]).start()  # the job ends
    third = node.hold(sets[2])
    assert node.copies() == sorted(map(os.path.basename, (first.folder, third.folder)))
    os.close(third.lock)
    os.close(first.lock)
    node.hold(sets[3])
    assert os.path.basename(first.folder) not in node.copies(), "the one that was not used for longest"


def test_copy_that_is_not_kept_goes_with_its_last_job(node: Node, shared: Path) -> None:
    first, second = node.hold(shared, keep=False), node.hold(shared, keep=False)
    node.cache().drop(first)
    assert node.copies() == [os.path.basename(second.folder)]
    node.cache().drop(second)
    assert node.copies() == []
    third, fourth = node.hold(shared, keep=False), node.hold(shared)
    node.cache().drop(fourth)
    node.cache().drop(third)
    assert len(node.copies()) == 1, "one of the jobs wants it kept"


def test_copy_of_a_killed_job_that_did_not_want_it_kept_is_swept_by_the_next(node: Node, shared: Path) -> None:
    held = node.hold(shared, keep=False)
    node.cache()
    assert len(node.copies()) == 1
    os.close(held.lock)  # as the kernel does
    node.cache()
    assert node.copies() == []


def test_interrupted_copy_is_continued(node: Node, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (shared / f"n{number}").write_bytes(bytes(100))
    real = os.replace
    done: list[str] = []

    def breaking(source: str, target: str) -> None:
        if not target.endswith("entry.json"):
            if len(done) >= 10:
                node.stopped.set()
                raise Stopped
            done.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", breaking)
    with pytest.raises(Stopped):
        node.hold(shared)
    monkeypatch.undo()
    node.stopped.clear()
    assert [name.endswith(".partial") for name in node.copies()] == [True]
    held = node.hold(shared)
    assert "were on this node already" in node.lines[-1]
    assert int(node.lines[-1].rpartition(", ")[2].split()[0]) >= 10
    assert len(os.listdir(held.content)) == 23


def test_file_that_changes_meanwhile_is_refused(node: Node, shared: Path) -> None:
    source = source_of(str(shared), True, no_pages)
    (shared / "one.bin").write_bytes(bytes(7))
    with pytest.raises(DataFault, match=r"(one\.bin|link) was changed while it was copied"):
        node.cache().hold("set", source)


def test_folder_of_another_account_is_not_used(node: Node, shared: Path) -> None:
    base = node.folder / f"trainmaster-{os.geteuid()}"
    base.mkdir(mode=0o777)
    base.chmod(0o777)
    with pytest.raises(DataFault, match="another account's, or others may look into it"):
        node.hold(shared)
    base.rmdir()
    elsewhere = node.folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    base.symlink_to(elsewhere)
    with pytest.raises(DataFault, match="another account's"):
        node.hold(shared)
    shutil.rmtree(node.folder)
    with pytest.raises(DataFault, match="cannot be used on this node: No such file"):
        node.hold(shared)


KEEPER = (sys.executable, "-S", "-m", "trainmaster.core.node_data.keeper")


@pytest.fixture
def keeper(node: Node, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start keepers of jobs; they end with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(source: Path, keep: bool = True) -> subprocess.Popen[str]:
        process = subprocess.Popen([*KEEPER, str(os.getpid())], stdin=-1, stdout=-1, text=True)
        order = {
            "items": [{"name": "set", "source": str(source), "keep": keep, "unpack": True}],
            "folder": str(node.folder),
            "limit": None,
            "links": str(tmp_path / f"links{len(running)}"),
            "allocation_id": "1.1",
            "master": {"url": "http://127.0.0.1:9", "token": "t", "url_file": None, "url_owner": None},
        }
        running.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def answers(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What a keeper says until it is ready."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        if "ready" in found[-1] or "fault" in found[-1]:
            break
    return found


def test_jobs_that_start_together_make_one_copy(
    node: Node, shared: Path, keeper: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for number in range(300):
        (shared / f"n{number}").write_bytes(bytes(10_000))
    jobs = [keeper(shared) for _ in range(3)]
    said = [answers(job) for job in jobs]
    assert all(found[-1] == {"ready": True} for found in said)
    copied = [one["log"] for found in said for one in found if "copied 3" in one.get("log", "")]
    assert len(copied) == 1, said
    assert len(node.copies()) == 1
    assert len(os.listdir(tmp_path / "links2" / "set")) == 303


def test_killed_keeper_leaves_the_lock_and_its_copy_to_the_next(
    node: Node, shared: Path, keeper: Callable[..., subprocess.Popen[str]]
) -> None:
    with (shared / "large").open("wb") as file:
        file.truncate(2**32)  # a file of holes takes a while to copy
    killed = keeper(shared)
    wait_for(lambda: node.folder.joinpath(f"trainmaster-{os.geteuid()}").exists(), "the folder of copies")
    wait_for(lambda: any(name.endswith(".partial") for name in node.copies()), "a copy that is being made")
    killed.kill()
    killed.wait()
    (shared / "large").unlink()
    (found,) = [one for one in answers(keeper(shared, keep=False)) if "log" in one]
    assert "copied" in found["log"]
    assert not any(name.endswith(".partial") for name in node.copies()), "what was left is swept"


def test_what_is_not_kept_is_removed_when_the_job_ends(
    node: Node, shared: Path, keeper: Callable[..., subprocess.Popen[str]]
) -> None:
    job = keeper(shared, keep=False)
    answers(job)
    assert len(node.copies()) == 1
    assert job.stdin is not None
    job.stdin.close()
    job.wait(30)
    assert node.copies() == []


def test_waiting_job_says_so_and_can_be_stopped(node: Node, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_POLL", 0.01)
    cache = node.cache()
    source = source_of(str(shared), True, no_pages)
    with cache._locked(source.key, ""):
        stop = threading.Timer(0.3, node.stopped.set)
        stop.start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            node.hold(shared)
        assert time.monotonic() - began < 10
    assert node.lines == ["data set: another job on this node copies it; waiting for that"]
