"""A real sshd and a real sudo with the helper installed, each for as long as a test needs it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.access.installed import Installed
from tests.support.access.sshd import Sshd
from tests.support.cluster.packages import Unavailable


@pytest.fixture(scope="module")
def ssh_server() -> Iterator[Sshd]:
    folder = Path(tempfile.mkdtemp(prefix="tm-sshd-", dir="/var/tmp"))
    folder.chmod(0o711)
    try:
        server = Sshd(folder / "server")
    except Unavailable as reason:
        pytest.skip(f"no sshd: {reason}")
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def sshd(ssh_server: Sshd) -> Iterator[Sshd]:
    """Running when the test begins, whatever the one before did to it."""
    ssh_server.start_if_stopped()
    ssh_server.trust()
    yield ssh_server
    ssh_server.cut()


@pytest.fixture(scope="module")
def helper_installed() -> Iterator[Installed]:
    try:
        installed = Installed()
    except Unavailable as reason:
        pytest.skip(f"no sudo: {reason}")
    yield installed
    installed.remove()


@pytest.fixture
def installed(helper_installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The helper as an administrator installs it, with a folder for jobs of its own."""
    root = Path(tempfile.mkdtemp(prefix="tm-jobs-", dir="/var/tmp"))
    root.chmod(0o1777)
    helper_installed.allow(root)
    yield helper_installed
    shutil.rmtree(root)
