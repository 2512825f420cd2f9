"""What the doctor finds of folders that users' jobs write to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from trainmaster.config.master import parse_master
from trainmaster.dispatchers.base import FolderFacts, Setup
from trainmaster.dispatchers.slurm.dispatcher import SlurmDispatcher
from trainmaster.master import shared_roots
from trainmaster.master.services.clusters.clusters import Cluster

DIRECTORY = 0o040000


class Site(SlurmDispatcher):
    """A cluster whose folders are as a test says: path -> mode, whether users may write there."""

    modes: Mapping[str, int] = {}

    def folders(self, paths: Sequence[str], user: str | None) -> Mapping[str, FolderFacts | None]:
        def facts(path: str) -> FolderFacts | None:
            mode = self.modes.get(path)
            if mode is None:
                return None
            return FolderFacts(DIRECTORY | mode, 999, bool(mode & 0o004), user is None or bool(mode & 0o002))

        return {path: facts(path) for path in paths}


def found(modes: Mapping[str, int], tmp_path: Path, text: str = "", accounts: Sequence[str] = ("ada",)) -> list[str]:
    config = parse_master(
        "resource_manager:\n"
        "  {type: slurm, job_storage_root: /s/jobs, impersonation: sudo, apptainer_image_root: /s/images}\n"
        + (text or "checkpoint_storage: {type: shared_fs, host_path: /s/checkpoints}\n")
    )
    (manager,) = config.managers
    options = {"impersonation": "sudo"}
    dispatcher = Site(Setup(name="x", prefix="det-", job_root=tmp_path, options=options))
    dispatcher.modes = {"/": 0o755, "/s": 0o755, "/s/jobs": 0o1777, "/s/images": 0o755, **modes}
    cluster = Cluster("x", dispatcher, tmp_path, facts=manager.facts())
    findings = shared_roots.findings(config, manager, cluster, Path("/s/jobs"), tmp_path, accounts)
    return [f"{one.subject}: {one.text}" for one in findings if one.bad]


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        ({"/s/checkpoints": 0o755}, ["users cannot make files in", "ada cannot make files in"]),
        ({}, ["does not exist, and users cannot make it in /s (mode 0755", "ada cannot make files in /s "]),
        ({"/s/checkpoints": 0o777}, ["users can replace each other's folders"]),
        ({"/s/checkpoints": 0o1777, "/s/images": 0o700}, ["images: ada cannot read /s/images (mode 0700"]),
        ({"/s/checkpoints": 0o1777, "/s/jobs": 0o755}, ["job folders of default: ada cannot make files in /s/jobs"]),
        ({"/s/checkpoints": 0o1777}, []),
    ],
)
def test_folders_are_tried_as_users(tmp_path: Path, modes: Mapping[str, int], words: Sequence[str]) -> None:
    findings = found(modes, tmp_path)
    assert len(findings) == len(words), findings
    for finding, expected in zip(findings, words, strict=True):
        assert expected in finding


def test_modes_are_checked_without_any_account(tmp_path: Path) -> None:
    (finding,) = found({"/s/checkpoints": 0o755}, tmp_path, accounts=())
    assert "users cannot make files in /s/checkpoints (mode 0755, uid 999)" in finding


def test_checkpoints_in_masters_own_folder_are_reported(tmp_path: Path) -> None:
    (finding,) = found({}, tmp_path, text="port: 8080\n")
    assert "who cannot write into the master's own" in finding


def test_data_that_jobs_mount_is_readable(tmp_path: Path) -> None:
    text = """
checkpoint_storage: {type: shared_fs, host_path: /s/checkpoints}
task_container_defaults: {bind_mounts: [{host_path: /s/data, container_path: /data}]}
"""
    (finding,) = found({"/s/checkpoints": 0o1777, "/s/data": 0o750}, tmp_path, text)
    assert finding == "bind_mounts: ada cannot read /s/data (mode 0750, uid 999)"
