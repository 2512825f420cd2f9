"""Access tokens: whose they are, how long they last, what becomes of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.api.people import Person, person
from tests.support.master import MasterProcess

Json = dict[str, Any]
TOKENS = "/api/v1/tokens"


@pytest.fixture(scope="module")
def ada(admin: Api) -> Person:
    return person(admin)


def make(api: Api, owner: Person, **fields: Any) -> tuple[int, Api]:
    """A token's number, and somebody who uses it."""
    answer = api.post(TOKENS, {"userId": owner.id, **fields})
    assert answer.status == 200, answer.content
    return int(answer.json["tokenId"]), Api(api.url, answer.json["token"])


def listed(api: Api, **query: Any) -> dict[int, Json]:
    return {one["id"]: one for one in api.get(TOKENS, **query).json["tokenInfo"]}


def test_a_token_from_its_making_to_its_end(master: MasterProcess, ada: Person) -> None:
    number, program = make(ada.api, ada, description="nightly")
    assert program.get("/api/v1/me").json["user"]["id"] == ada.id
    entry = listed(ada.api)[number]
    assert (entry["userId"], entry["description"], entry["revoked"]) == (ada.id, "nightly", False)
    assert entry["tokenType"] == "TOKEN_TYPE_ACCESS_TOKEN"
    assert "token" not in entry
    changed = ada.api.call("PATCH", f"{TOKENS}/{number}", {"tokenId": number, "description": "weekly"})
    assert (changed.status, changed.json["tokenInfo"]["description"]) == (200, "weekly")
    assert program.post("/api/v1/auth/logout").status == 200
    assert program.get("/api/v1/me").status == 200  # it is revoked, not logged out
    assert ada.api.call("PATCH", f"{TOKENS}/{number}", {"setRevoked": True}).json["tokenInfo"]["revoked"]
    assert program.get("/api/v1/me").status == 401
    assert f"refused the access token {number} of {ada.name}: it is revoked" in master.log.read_text()
    assert ada.api.call("PATCH", f"{TOKENS}/{number}", {"setRevoked": False}).json["tokenInfo"]["revoked"]
    assert number not in listed(ada.api)
    assert (number in listed(ada.api, showInactive=True), number in listed(ada.api, tokenIds=[number])) == (True, True)


@pytest.mark.parametrize(("lifespan", "hours"), [(None, 30 * 24), ("", 30 * 24), ("48h", 48), ("48h0m0s", 48)])
def test_how_long_one_lives(ada: Person, lifespan: str | None, hours: int) -> None:
    number, _ = make(ada.api, ada, lifespan=lifespan)
    entry = listed(ada.api)[number]
    created, expiry = (dt.datetime.fromisoformat(entry[key]) for key in ("createdAt", "expiry"))
    assert abs(expiry - created - dt.timedelta(hours=hours)) < dt.timedelta(minutes=5)


@pytest.mark.parametrize("lifespan", ["-1", "8761h", "0h", "-3h", "1d", "forever", "99999999h"])
def test_lifespans_that_cannot_be(ada: Person, lifespan: str) -> None:
    answer = ada.api.post(TOKENS, {"userId": ada.id, "lifespan": lifespan})
    assert (answer.status, answer.sentence.startswith("lifespan: ")) == (400, True)


def test_an_expired_token_is_refused(master: MasterProcess, engine: Engine, ada: Person) -> None:
    number, program = make(ada.api, ada)
    with engine.begin() as connection:
        past = text("UPDATE user_sessions SET expires_at = now() - interval '1 s' WHERE id = :number")
        connection.execute(past, {"number": number})
    assert program.get("/api/v1/me").status == 401
    assert f"refused the access token {number} of {ada.name}: it has expired" in master.log.read_text()
    assert number not in listed(ada.api)
    assert number in listed(ada.api, showInactive=True)


def test_tokens_of_others(admin: Api, user: Api, ada: Person) -> None:
    number, program = make(admin, ada, description="made for ada")
    assert number in listed(ada.api)
    assert number not in listed(user, tokenIds=[number])
    assert listed(user, username=ada.name) == {}
    assert user.call("PATCH", f"{TOKENS}/{number}", {"setRevoked": True}).status == 404
    assert user.post(TOKENS, {"userId": ada.id}).status == 403
    assert program.get("/api/v1/me").status == 200
    assert set(listed(admin, username=ada.name)) == set(listed(ada.api))
    assert admin.call("PATCH", f"{TOKENS}/{number}", {"setRevoked": True}).status == 200
    assert program.get("/api/v1/me").status == 401
    assert admin.post(TOKENS, {"userId": 99999999}).status == 404
    session = admin.call("PATCH", f"{TOKENS}/1", {"setRevoked": True})
    assert session.status == 404  # what logging in made is no access token


def test_the_list_is_sorted_and_cut(ada: Person) -> None:
    numbers = [make(ada.api, ada, description=word)[0] for word in ("b", "a")]
    by_word = ada.api.get(TOKENS, tokenIds=numbers, sortBy="SORT_BY_DESCRIPTION").json
    assert [one["id"] for one in by_word["tokenInfo"]] == numbers[::-1]
    cut = ada.api.get(TOKENS, tokenIds=numbers, orderBy="ORDER_BY_DESC", limit=1).json
    assert ([one["id"] for one in cut["tokenInfo"]], cut["pagination"]["total"]) == (numbers[1:], 2)


def test_a_job_has_none(job: Job) -> None:
    for answer in (job.api.get(TOKENS), job.api.post(TOKENS, {"userId": 2})):
        assert (answer.status, "job" in answer.sentence) == (403, True)
