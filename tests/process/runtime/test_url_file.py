"""Whom a job believes about where the master is: the file may lie in a folder in which everybody can leave files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from trainmaster.runtime import url_file
from trainmaster.runtime.url_file import read_url

STRANGER, MASTER = 60_001, 60_002
# Only root can give a file away.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root, so no file can be given to somebody else")


@pytest.fixture
def told() -> Iterator[Path]:
    """A file that other accounts can reach; pytest's own folders are root's alone."""
    with tempfile.TemporaryDirectory(prefix="tm-url-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "master-url"
        path.write_text("http://login1:8080/\nmore\n")
        path.chmod(0o644)
        yield path


def read_as_stranger(path: Path, owner: int | None = None, wrap: Sequence[str] = ()) -> str:
    """What `read_url` gives to an account that nobody has, in a process that `wrap` starts."""
    # Its source, because that account may not be let into the folder of ours.
    code = f"{Path(url_file.__file__).read_text()}\nprint(read_url({str(path)!r}, {owner!r}))"
    done = run_as_stranger([*wrap, sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_as_stranger(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", capture_output=True, text=True, check=False
    )


def test_the_first_line_of_ones_own_file_counts(told: Path) -> None:
    assert read_url(str(told)) == "http://login1:8080"


@pytest.mark.parametrize("text", ["", "login1:8080\n", "ftp://x\n", "\nhttp://second-line\n", "\udc80"])
def test_malformed_url_is_ignored(told: Path, text: str) -> None:
    told.write_bytes(text.encode(errors="surrogateescape"))
    assert read_url(str(told)) is None


def test_only_a_plain_file_is_read(told: Path, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(told)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path, tmp_path / "missing"):
        assert read_url(str(path)) is None


@needs_root
def test_a_strangers_file_is_not_believed(told: Path) -> None:
    os.chown(told, STRANGER, -1)
    assert read_url(str(told)) is None
    assert read_url(str(told), MASTER) is None
    os.chown(told, MASTER, -1)
    assert read_url(str(told)) is None
    assert read_url(str(told), MASTER) == "http://login1:8080"


@needs_root
def test_roots_file_is_believed_by_everybody(told: Path) -> None:
    assert read_as_stranger(told) == "http://login1:8080"
    os.chown(told, MASTER, -1)
    assert read_as_stranger(told) == "None"


@needs_root
def test_owner_named_by_master_is_trusted_in_user_namespace(told: Path) -> None:
    namespace = ["unshare", "--user", "--map-root-user"]
    if run_as_stranger([*namespace, "true"]).returncode != 0:
        pytest.skip("this machine lets nobody make a user namespace")
    os.chown(told, MASTER, -1)
    assert read_as_stranger(told, MASTER, namespace) == "http://login1:8080"
    assert read_as_stranger(told, None, namespace) == "None"  # nobody was named
