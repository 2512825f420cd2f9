"""Files that jobs have in common: once for each account, checked for each job, removed when no job needs them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from pathlib import Path

import pytest

from trainmaster.containers import ContainerStart, container_runtime
from trainmaster.dispatchers.base import JobFile, SharedFile, StagedFile
from trainmaster.dispatchers.cluster.folder import JobFolder
from trainmaster.dispatchers.cluster.jobfolder import shared_files
from trainmaster.dispatchers.cluster.jobfolder.own_files import SUBFOLDER
from trainmaster.templates.render import FOLDER

CODE = b"code of the job " * 50_000
LONG_AGO = 2 * shared_files.UNUSED


class Release:
    """A file of a release, and how often its content was asked for."""

    def __init__(self, content: bytes = CODE) -> None:
        self.content, self.reads = content, 0
        self.sha256 = hashlib.sha256(content).hexdigest()

    def files(self) -> dict[str, JobFile]:
        return {"job.json": StagedFile(b"{}"), "runtime.zip": SharedFile(self.sha256, self._read)}

    def _read(self) -> bytes:
        self.reads += 1
        return self.content


def staged(root: Path, token: str, release: Release) -> JobFolder:
    folder = JobFolder(root, token)
    folder.stage_sharing(release.files())
    return folder


def place(root: Path, release: Release) -> Path:
    return root / JobFolder(root, "det-0").cache_dir / release.sha256


def age(root: Path, *releases: Release) -> None:
    then = time.time() - LONG_AGO
    for path in (*(place(root, release) for release in releases), root / JobFolder(root, "det-0").cache_dir):
        os.utime(path, (then, then))


def test_many_jobs_have_one_file(tmp_path: Path) -> None:
    release = Release()
    folders = [staged(tmp_path, f"det-{number}", release) for number in range(20)]
    assert release.reads == 1
    for folder in folders:
        assert (folder.path / "runtime.zip").read_bytes() == CODE
    on_disk = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in on_disk) == len(CODE) + 20 * 2
    only = place(tmp_path, release) / "runtime.zip"
    assert stat.S_IMODE(only.stat().st_mode) == 0o400
    assert stat.S_IMODE(only.parent.parent.stat().st_mode) == 0o700
    assert folders[0].shared_folders(release.files()) == [only.parent]


@pytest.mark.parametrize("scripts", [(), ("pbs_job.sh.j2", "pbs_host.sh.j2")])
@pytest.mark.parametrize("runtime", ["none", "apptainer", "docker", "enroot", "pyxis"])
def test_a_job_folder_is_small(runtime: str, scripts: tuple[str, ...], tmp_path: Path) -> None:
    """What every dispatcher stages, with the longest scripts, a certificate and the files of an experiment."""
    release = Release()
    folder = JobFolder(tmp_path, "det-1")
    start = container_runtime(runtime).start_script(
        ContainerStart(folder.path, "/images/a.sif", shared=folder.shared_folders(release.files()) * 2, gpus=True)
    )
    folder.stage_sharing(
        {
            **release.files(),
            "context.tgz": SharedFile(release.sha256, lambda: CODE),
            "job.json": StagedFile(b"x" * 1000),
            "secrets/token": StagedFile(b"x" * 60),
            "master.crt": StagedFile(b"x" * 1200),
            "start.sh": StagedFile(start.encode()),
            **{name: StagedFile(_without_comments(FOLDER / name)) for name in scripts},
        }
    )
    on_disk = [path for path in folder.path.rglob("*") if path.is_file() or path.is_symlink()]
    assert len([path for path in on_disk if not path.is_symlink()]) <= 6
    assert sum(path.lstat().st_size for path in on_disk) <= 21_200


def _without_comments(template: Path) -> bytes:
    """About what becomes of it: its blocks give way to values of the same length."""
    return re.sub(rb"\{#.*?#\}|\{%.*?%\}\n?", b"", template.read_bytes(), flags=re.DOTALL)


def test_damaged_shared_file_is_written_again(tmp_path: Path) -> None:
    release = Release()
    file = place(tmp_path, release) / "runtime.zip"
    staged(tmp_path, "det-1", release)
    for damage in (CODE[:-1], CODE[:-1] + b"!", None):
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)
        staged(tmp_path, "det-1", release)
        assert file.read_bytes() == CODE
    assert release.reads == 4
    assert sorted(path.name for path in file.parent.iterdir()) == ["runtime.zip"]


def test_a_folder_that_others_can_write_into_is_not_used(tmp_path: Path) -> None:
    release = Release()
    cache_dir = place(tmp_path, release).parent
    cache_dir.mkdir()
    cache_dir.chmod(0o777)
    folder = staged(tmp_path, "det-1", release)
    assert not (folder.path / "runtime.zip").is_symlink()
    assert (folder.path / "runtime.zip").read_bytes() == CODE
    cache_dir.rmdir()
    cache_dir.symlink_to(tmp_path)
    assert (staged(tmp_path, "det-2", release).path / "runtime.zip").read_bytes() == CODE
    assert not (folder.path / "runtime.zip").is_symlink()


def test_unneeded_shared_file_is_removed(tmp_path: Path) -> None:
    old, new = Release(b"old"), Release(b"new")
    first, second, third = (staged(tmp_path, f"det-{number}", old) for number in range(3))
    running = staged(tmp_path, "det-9", new)
    first.forget()
    age(tmp_path, old, new)
    second.forget()
    assert place(tmp_path, old).exists(), "the third job has a link to it"
    third.forget()
    assert place(tmp_path, old).exists(), "it was looked at a moment ago"
    staged(tmp_path, "det-8", new).forget()
    age(tmp_path, old)
    staged(tmp_path, "det-8", new).forget()
    assert not place(tmp_path, old).exists()
    assert (running.path / "runtime.zip").read_bytes() == b"new"
    running.forget()
    assert place(tmp_path, new).exists(), "the next job may come in a moment"


def test_a_file_that_is_staged_while_it_is_removed_stays(tmp_path: Path) -> None:
    release = Release()
    staged(tmp_path, "det-1", release)
    cache_dir = os.open(place(tmp_path, release).parent, SUBFOLDER)
    try:
        shared_files._remove(cache_dir, release.sha256)  # it looked unused a moment before, but it was used
    finally:
        os.close(cache_dir)
    assert (place(tmp_path, release) / "runtime.zip").read_bytes() == CODE


def test_a_job_of_an_older_master_keeps_its_own_file(tmp_path: Path) -> None:
    """It holds no link: nothing that happens to shared files reaches it, and its end removes all of it."""
    folder = JobFolder(tmp_path, "det-1")
    folder.stage({"runtime.zip": StagedFile(CODE)})
    release = Release()
    staged(tmp_path, "det-2", release)
    age(tmp_path, release)
    assert (folder.path / "runtime.zip").read_bytes() == CODE
    folder.forget()
    assert not folder.path.exists()
    assert place(tmp_path, release).exists()
