"""Password guessing from the victim's own address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api.http import Api
from tests.support.api.people import PASSWORD, enter, person
from trainmaster.client import credentials
from trainmaster.client import login as logins
from trainmaster.client.errors import ClientError
from trainmaster.client.session_calls import hashed

LOGIN = "/api/v1/auth/login"


def test_wrong_passwords_from_the_victims_address_do_not_lock_out_who_has_logged_in_from_there(
    admin: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = person(admin).name
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path))
    url = logins.master_url(admin.url)
    token, mark = logins.new_session(url, victim, PASSWORD)
    credentials.remember(url, victim, token, active=True)
    credentials.remember_mark(url, victim, mark)
    answers = [enter(admin.url, victim, "wrong").status for _ in range(12)]
    assert answers[-1] == 429
    assert enter(admin.url, victim).status == 429  # the guesser may even know it by now
    assert logins.new_session(url, victim, PASSWORD)[1] == mark
    assert (tmp_path / "client-marks.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ClientError, match="wrong"):
        logins.new_session(url, victim, "wrong")


def test_a_mark_is_good_for_the_name_that_it_was_given_to(admin: Api, nobody: Api) -> None:
    victim, mallory = person(admin), person(admin)
    mine = enter(admin.url, mallory.name).json["clientMark"]
    forged = f"{mine.partition('.')[0]}.{'0' * 64}"
    for mark in (mine, forged, "x", "."):
        for _ in range(7):
            answer = nobody.post(LOGIN, guess(victim.name, mark))
        assert answer.status == 429, mark


def test_a_mark_does_not_let_its_holder_guess_on(admin: Api, nobody: Api) -> None:
    victim = person(admin)
    mark = enter(admin.url, victim.name).json["clientMark"]
    assert [nobody.post(LOGIN, guess(victim.name, mark)).status for _ in range(8)][-1] == 429


def guess(name: str, mark: str) -> dict[str, object]:
    return {"username": name, "password": hashed("wrong"), "isHashed": True, "clientMark": mark}
