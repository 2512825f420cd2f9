"""The token store that is shared with Determined's client."""

from __future__ import annotations

import json
import multiprocessing
import stat
from pathlib import Path

import pytest

from trainmaster.client import credentials
from trainmaster.client.errors import ClientError

URL = "http://login1:8080"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DET_DEBUG_CONFIG_PATH", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "determined" / "auth.json"


def test_a_session_is_kept_and_forgotten(store: Path) -> None:
    assert (credentials.active_user(URL), credentials.token(URL, "ann")) == (None, None)
    credentials.remember(URL, "ann", "t1", active=True)
    credentials.remember(URL, "bob", "t2", active=False)
    assert credentials.active_user(URL) == "ann"
    assert credentials.users(URL) == ["ann", "bob"]
    assert credentials.token("http://other:8080", "ann") is None
    credentials.forget(URL, "ann")
    assert credentials.token(URL, "ann") is None
    assert json.loads(store.read_text()) == {
        "version": 2,
        "masters": {URL: {"active_user": "ann", "tokens": {"bob": "t2"}}},
    }


def test_token_store_omits_active_user_rather_than_null(store: Path) -> None:
    credentials.remember(URL, "ann", "t1", active=False)
    entry = json.loads(store.read_text())["masters"][URL]
    assert entry == {"tokens": {"ann": "t1"}}  # no active_user at all rather than null


def test_only_its_owner_can_read_it(store: Path) -> None:
    credentials.remember(URL, "ann", "t1", active=True)
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in store.parent.iterdir()) == ["auth.json", "auth.json.lock"]


def _remember(folder: str, number: int) -> None:
    import os

    os.environ["XDG_CONFIG_HOME"] = folder
    for turn in range(20):
        credentials.remember(f"http://m{number}:1", f"user{turn}", f"token-{number}-{turn}", active=turn == 7)


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials.folder() == tmp_path / "determined"
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path / "debug"))
    assert credentials.folder() == tmp_path / "debug"
    monkeypatch.delenv("DET_DEBUG_CONFIG_PATH")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert credentials.folder() == tmp_path / "home/.config/determined"


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_remember, args=(str(tmp_path), number)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 6
    for number in range(6):
        url = f"http://m{number}:1"
        assert credentials.active_user(url) == "user7"
        assert [credentials.token(url, f"user{turn}") for turn in range(20)] == [
            f"token-{number}-{t}" for t in range(20)
        ]


def test_version_1_is_read_and_becomes_version_2(store: Path) -> None:
    store.parent.mkdir()
    entry = {"active_user": "ann", "tokens": {"ann": "t1"}}
    store.write_text(json.dumps({"version": 1, "masters": {"login1": entry, "http://[bad": entry}}))
    assert (credentials.active_user(URL), credentials.token(URL, "ann")) == ("ann", "t1")
    credentials.remember(URL, "bob", "t2", active=False)
    found = json.loads(store.read_text())
    assert found == {"version": 2, "masters": {URL: {"active_user": "ann", "tokens": {"ann": "t1", "bob": "t2"}}}}


@pytest.mark.parametrize("text", ["{", '{"version": 3, "masters": {}}', "[]"])
def test_a_store_that_is_not_understood_is_left_as_it_is(store: Path, text: str) -> None:
    store.parent.mkdir()
    store.write_text(text)
    with pytest.raises(ClientError, match=r"token store .*log in again"):
        credentials.remember(URL, "ann", "t1", active=True)
    assert store.read_text() == text


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path / "file"))
    with pytest.raises(ClientError, match=r"token store in .*file cannot be written"):
        credentials.remember(URL, "ann", "t1", active=True)
