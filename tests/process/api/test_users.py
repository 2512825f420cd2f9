"""Users: made, changed, let in and shut out; and what they set for themselves."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.people import PASSWORD, Person, enter, make, person
from tests.support.master import MasterProcess
from trainmaster.client.session_calls import hashed

Json = dict[str, Any]
USERS = "/api/v1/users"
ACCOUNT = {"agentUid": 4711, "agentUser": "ada", "agentGid": 4711, "agentGroup": "hpc"}


@pytest.fixture
def ada(admin: Api) -> Person:
    return person(admin)


def change(api: Api, who: Person, **fields: Any) -> int:
    return api.call("PATCH", who.path, fields).status


def test_a_user_from_the_making_on(admin: Api, user: Api) -> None:
    name = f"u{uuid.uuid4().hex[:8]}"
    made = make(admin, username=name.upper(), displayName="Ada L.", agentUserGroup=ACCOUNT).json["user"]
    assert (made["username"], made["displayName"], made["agentUserGroup"]) == (name, "Ada L.", ACCOUNT)
    assert (made["admin"], made["active"], made["remote"], made["lastAuthAt"]) == (False, True, False, None)
    assert enter(admin.url, name).json["user"]["lastAuthAt"] is not None
    for path in (f"{USERS}/{made['id']}", f"{USERS}/{name}/by-username"):
        assert user.get(path).json["user"]["id"] == made["id"]
    assert [found["id"] for found in user.get(USERS, name="ada l").json["users"]][-1] == made["id"]
    assert user.get(f"{USERS}/99999999").status == user.get(f"{USERS}/nobody-here/by-username").status == 404


@pytest.mark.parametrize(
    ("user", "credentials", "status", "word"),
    [
        ({"username": " "}, {}, 400, "name"),
        ({"username": "ada lovelace"}, {}, 400, "name"),
        ({"username": "a/b"}, {}, 400, "name"),
        ({"username": "DETERMINED"}, {}, 409, "already"),
        ({}, {"password": None}, 400, "password"),
        ({}, {"password": "", "isHashed": True}, 400, "empty"),
        ({}, {"password": "Correct-horse-1", "isHashed": True}, 400, "isHashed"),
        ({}, {"password": "Short-1", "isHashed": False}, 400, "8 characters"),
        ({}, {"password": "no-upper-case-1", "isHashed": False}, 400, "upper"),
        ({}, {"password": "No-digits-here", "isHashed": False}, 400, "digit"),
        ({"remote": True}, {}, 400, "remote"),
        ({"agentUserGroup": {**ACCOUNT, "agentUid": 0, "agentUser": "root"}}, {}, 400, "root"),
    ],
)
def test_users_that_cannot_be(admin: Api, user: Json, credentials: Json, status: int, word: str) -> None:
    body = {"user": {"username": f"u{uuid.uuid4().hex[:8]}", **user}, "password": hashed(PASSWORD), "isHashed": True}
    answer = admin.post(USERS, {**body, **credentials})
    assert (answer.status, word in answer.sentence) == (status, True), answer.content


def test_a_remote_user_has_no_password(admin: Api) -> None:
    name = f"u{uuid.uuid4().hex[:8]}"
    made = admin.post(USERS, {"user": {"username": name, "remote": True}})
    assert (made.status, made.json["user"]["remote"]) == (200, True)
    for word in ("", PASSWORD):
        assert enter(admin.url, name, word).status == 401
    fields = {"password": hashed(PASSWORD), "isHashed": True}
    refused = admin.call("PATCH", f"{USERS}/{made.json['user']['id']}", fields)
    assert (refused.status, "remote" in refused.sentence) == (400, True)


def test_users_may_change_only_their_own_display_name(admin: Api, user: Api, ada: Person) -> None:
    assert change(ada.api, ada, displayName=" Ada ") == 200
    assert ada.api.get(ada.path).json["user"]["displayName"] == "Ada"
    own: list[Json] = [
        {"username": "x"},
        {"admin": True},
        {"active": True},
        {"remote": False},
        {"agentUserGroup": ACCOUNT},
        {"displayName": "x", "admin": True},
    ]
    assert [change(ada.api, ada, **fields) for fields in own] == [403] * len(own)
    assert [change(user, ada, **fields) for fields in ({"displayName": "x"}, {"password": "x"})] == [403, 403]
    assert user.post(f"{ada.path}/password", hashed(PASSWORD)).status == 403
    assert user.post(USERS, {"user": {"username": "x"}}).status == 403
    found = admin.get(ada.path).json["user"]
    assert (found["username"], found["displayName"], found["admin"]) == (ada.name, "Ada", False)
    assert found["agentUserGroup"] is None


def test_user_cannot_show_name_of_another(admin: Api, ada: Person) -> None:
    eve = person(admin)
    assert change(ada.api, ada, displayName=f"Ada of {ada.name}") == 200
    for taken in ("Admin", "determined", " DETERMINED ", ada.name.upper(), f"ADA OF {ada.name}"):
        assert change(eve.api, eve, displayName=taken) == 400, taken
    assert eve.api.get(eve.path).json["user"]["displayName"] == ""
    assert change(eve.api, eve, displayName=eve.name.upper()) == 200
    assert make(admin, displayName="Admin").status == 400
    chief = admin.get("/api/v1/me").json["user"]["id"]
    assert admin.call("PATCH", f"{USERS}/{chief}", {"displayName": "Admin"}).status == 200
    assert admin.call("PATCH", f"{USERS}/{chief}", {"displayName": ""}).status == 200


def test_an_administrator_changes_everything(admin: Api, ada: Person) -> None:
    new = f"v{uuid.uuid4().hex[:8]}"
    assert change(admin, ada, username=f" {new.upper()}", admin=True, agentUserGroup=ACCOUNT) == 200
    found = ada.api.get("/api/v1/me").json["user"]
    assert (found["username"], found["admin"], found["agentUserGroup"]) == (new, True, ACCOUNT)
    assert change(admin, ada, username="determined") == 409
    assert change(ada.api, ada, admin=False) == 200
    assert ada.api.call("PATCH", ada.path, {"admin": True}).status == 403
    assert change(admin, ada, agentUserGroup={**ACCOUNT, "agentGroup": "root"}) == 400
    assert admin.call("PATCH", f"{USERS}/99999999", {"admin": False}).status == 404


@pytest.mark.parametrize("way", ["patch", "post"])
def test_a_new_password_ends_the_other_sessions(admin: Api, ada: Person, way: str) -> None:
    other = Api(admin.url, enter(admin.url, ada.name).json["token"])
    new = hashed("Another-horse-2")
    if way == "patch":
        answer = ada.api.call("PATCH", ada.path, {"password": new, "isHashed": True})
    else:
        assert ada.api.post(f"{ada.path}/password", {"password": new}).status == 400
        answer = ada.api.post(f"{ada.path}/password", new)
    assert answer.status == 200
    assert (ada.api.get("/api/v1/me").status, other.get("/api/v1/me").status) == (200, 401)
    assert enter(admin.url, ada.name).status == 401
    assert enter(admin.url, ada.name, "Another-horse-2").status == 200


def test_deactivation_ends_sessions_for_good(master: MasterProcess, admin: Api, ada: Person) -> None:
    token = Api(admin.url, ada.api.post("/api/v1/tokens", {"userId": ada.id}).json["token"])
    assert token.get("/api/v1/me").status == 200
    assert change(admin, ada, active=False) == 200
    assert [api.get("/api/v1/me").status for api in (ada.api, token)] == [401, 403]
    assert enter(admin.url, ada.name).status == 403
    assert f"of {ada.name}: the user is deactivated" in master.log.read_text()
    assert change(admin, ada, active=True) == 200
    assert [api.get("/api/v1/me").status for api in (ada.api, token)] == [401, 200]
    assert enter(admin.url, ada.name).status == 200


def test_many_are_activated_at_once(admin: Api, user: Api, ada: Person) -> None:
    other = person(admin)
    body = {"userIds": [ada.id, 99999999, other.id], "activate": False}
    assert user.call("PATCH", USERS, body).status == 403
    results = admin.call("PATCH", USERS, body).json["results"]
    assert [(one["id"], bool(one["error"])) for one in results] == [
        (ada.id, False),
        (99999999, True),
        (other.id, False),
    ]
    found = {one["id"]: one["active"] for one in admin.get(USERS, active=False).json["users"]}
    assert (found[ada.id], found[other.id]) == (False, False)
    by_name = {"userIds": [], "filters": {"name": ada.name}, "activate": True}
    assert admin.call("PATCH", USERS, by_name).json["results"] == [{"id": ada.id, "error": ""}]
    assert admin.get(ada.path).json["user"]["active"]


def stay_alone(admin: Api) -> int:
    """From now on there is one administrator only. Its number."""
    me = int(admin.get("/api/v1/me").json["user"]["id"])
    for other in [one["id"] for one in admin.get(USERS, admin=True).json["users"] if one["id"] != me]:
        assert admin.call("PATCH", f"{USERS}/{other}", {"admin": False}).status == 200
    return me


def test_two_administrators_do_not_end_each_other(admin: Api) -> None:
    me = stay_alone(admin)
    pair = [person(admin, admin=True) for _ in range(2)]
    assert admin.call("PATCH", f"{USERS}/{me}", {"admin": False}).status == 200
    try:
        with ThreadPoolExecutor() as threads:
            ends = list(threads.map(lambda who, other: change(who.api, other, admin=False), pair, pair[::-1]))
        assert sorted(ends) in ([200, 403], [200, 409])  # who was too late is no administrator, or the last one
    finally:
        assert 200 in [one.api.call("PATCH", f"{USERS}/{me}", {"admin": True}).status for one in pair]
        stay_alone(admin)


@pytest.mark.parametrize("fields", [{"admin": False}, {"active": False}, {"remote": True}])
def test_an_administrator_stays(admin: Api, fields: Json) -> None:
    me = stay_alone(admin)
    refused = admin.call("PATCH", f"{USERS}/{me}", fields)
    assert (refused.status, "No administrator would be left" in refused.sentence) == (409, True)
    assert admin.get("/api/v1/me").json["user"]["admin"]


def test_the_list_is_filtered_sorted_and_cut(admin: Api) -> None:
    word = uuid.uuid4().hex[:8]
    ids = [int(make(admin, username=f"{word}{x}", admin=x == "b").json["user"]["id"]) for x in "bca"]
    admin.call("PATCH", f"{USERS}/{ids[1]}", {"active": False})

    def found(**query: Any) -> list[str]:
        return [one["username"][-1] for one in admin.get(USERS, name=word, **query).json["users"]]

    assert found() == ["b", "c", "a"]
    assert found(sortBy="SORT_BY_USER_NAME") == ["a", "b", "c"]
    assert found(sortBy="SORT_BY_NAME", orderBy="ORDER_BY_DESC", limit=2) == ["c", "b"]
    assert (found(admin=True), found(active=False), found(offset=1, limit=1)) == (["b"], ["c"], ["c"])
    assert admin.get(USERS, name=word, limit=1).json["pagination"]["total"] == 3
    assert admin.get(USERS, sortBy="SORT_BY_SHOE_SIZE").status == 400
    admin.call("PATCH", f"{USERS}/{ids[0]}", {"admin": False})


def test_settings_are_ones_own(user: Api, ada: Person) -> None:
    path = f"{USERS}/setting"

    def put(*settings: tuple[str, str, str]) -> None:
        body = [{"storagePath": where, "key": key, "value": value} for where, key, value in settings]
        assert ada.api.post(path, {"settings": body}).status == 200

    def there(api: Api) -> list[tuple[str, str, str]]:
        return [(s["storagePath"], s["key"], s["value"]) for s in api.get(path).json["settings"]]

    put(("table", "width", "3"), ("table", "height", "4"), ("", "theme", "dark"))
    put(("table", "width", "5"), ("table", "height", ""))
    assert there(ada.api) == [("", "theme", "dark"), ("table", "width", "5")]
    assert ("", "theme", "dark") not in there(user)
    assert ada.api.post(f"{path}/reset").status == 200
    assert there(ada.api) == []
    activity = {"activityType": "ACTIVITY_TYPE_GET", "entityType": "ENTITY_TYPE_PROJECT", "entityId": 1}
    assert ada.api.post(f"{USERS}/activity", activity).json == {}


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "text/plain"])
def test_body_of_other_content_type_is_refused_with_advice(master: MasterProcess, kind: str) -> None:
    """As a form on somebody's page would call it."""
    body = json.dumps({"username": "determined", "password": PASSWORD}).encode()
    request = urllib.request.Request(f"{master.url}/api/v1/auth/login", body, {"Content-Type": kind})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value as answer:
        assert answer.code == 400
        assert json.load(answer)["message"] == (
            f"The request's body has Content-Type '{kind}': send JSON, with Content-Type: application/json."
        )
