"""Every endpoint, called by every role without the right to it, on other users' objects."""

from __future__ import annotations

import http.client
import json
import re
import string
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Engine

from tests.process.api.test_permissions import PLACED
from tests.support.api.http import TIMEOUT, Api
from tests.support.api.jobs import config, create, jobs_of
from tests.support.api.people import give, person, workspace_of
from tests.support.master import MasterProcess, wait_for
from tests.support.security.bodies import BODIES
from tests.support.security.victim import Victim, fingerprint, make
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.http.permissions import ENDPOINTS, MASKED, Rule
from trainmaster.master.services.access.permissions import ADMINISTRATORS, Permission

Json = dict[str, Any]
WORKSPACE_ADMIN, VIEWER, EDITOR = 2, 4, 5

# Without roles everybody may add to everybody's models, as in Determined, unless jobs run as accounts of their own.
SHARED = ("POST /api/v1/models/{model_name}/versions",)
LEFT_OUT = ("GET /stream", "POST /api/v1/auth/logout", "DELETE /session")  # a WebSocket; what would end the walk
ROUTES = [key for key, rule in ENDPOINTS.items() if rule is not Rule.OPEN and key not in LEFT_OUT]
# Words of addresses that say whose thing it is. All but the first line's are of no workspace.
OWNED = (
    *PLACED,
    *(
        "allocation_id",
        "uuid",
        "checkpoint_uuid",
        "notebook_id",
        "shell_id",
        "tensorboard_id",
        "service_id",
        "webhook_id",
    ),
    *("user_id", "username", "group_id", "token_id", "session_id", "external_experiment_id", "number"),
)
# What everybody who has logged in may see of users, groups and roles, as in Determined.
PUBLIC = (
    "GET /api/v1/users/{user_id}",
    "GET /api/v1/users/{username}/by-username",
    "GET /api/v1/groups/{group_id}",
    "POST /api/v1/groups/search",
    "GET /api/v1/users",
    "GET /api/v1/roles/search/by-user/{user_id}",
    "GET /api/v1/roles/search/by-group/{group_id}",
    "GET /api/v1/roles/workspace/{workspace_id}",
    "GET /api/v1/tokens",
)


def words(key: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(key) if name}


def test_routes_without_object_in_address_have_body_entry() -> None:
    """A new route fails here until somebody has thought about whose things it touches."""
    silent = [
        key
        for key in ROUTES
        if not key.startswith("GET") and words(key).isdisjoint(OWNED) and ENDPOINTS[key] not in (Rule.AGENT, Rule.PROXY)
    ]
    others = ("pool_name", "agent_id", "name", "workload_type", "role_id")  # of the site, for administrators
    assert [key for key in silent if key not in BODIES and words(key).isdisjoint(others)] == []
    assert [key for key in BODIES if key not in ENDPOINTS] == []


class Walker:
    """Calls one address after the other as somebody, and keeps what was answered."""

    def __init__(self, url: str, token: str, things: Json) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
        self._token, self._things = token, things
        self.answers: dict[str, tuple[int, bytes]] = {}

    def walk(self, without: Sequence[str]) -> None:
        for key in sorted(set(ROUTES) - set(without), key=lambda key: (key.startswith("DELETE"), key)):
            self._call(key)
        self._connection.close()

    def _call(self, key: str) -> None:
        method, path = key.split(" ")
        body = BODIES.get(key)
        content = None if method in ("GET", "HEAD") else json.dumps(body(self._things) if body else {})
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        headers |= {"Content-Type": "application/json"}
        target = path.replace(":path}", "}").format_map(self._things)
        query = "?timeout_seconds=1&limit=50" if method == "GET" else ""
        self._connection.request(method, target + query, content, headers)
        answer = self._connection.getresponse()
        self.answers[key] = answer.status, answer.read()


@pytest.fixture(scope="module")
def rbac(rbac_master: MasterProcess, rbac_admin: Api) -> tuple[MasterProcess, Victim]:
    return rbac_master, prepare(rbac_master, rbac_admin, roles=True)


@pytest.fixture(scope="module")
def basic(master: MasterProcess, admin: Api) -> tuple[MasterProcess, Victim]:
    return master, prepare(master, admin, roles=False)


def prepare(master: MasterProcess, rbac_admin: Api, *, roles: bool) -> Victim:
    """The queue's only slot is taken, so that the victim's jobs are played by the test."""
    blocker = create(rbac_admin, config(name="holds the slot"))
    wait_for(
        lambda: rbac_admin.get("/api/v1/job-queues-v2").json["jobs"] and running(rbac_admin),
        "a job that holds the only slot",
    )
    assert blocker
    owner = person(rbac_admin)
    workspace, project = workspace_of(rbac_admin)
    found = rbac_admin.get(f"/api/v1/projects/{project}").json["project"]
    if roles:
        give(rbac_admin, EDITOR, owner.id, workspace)
    victim = make(master, rbac_admin, owner, workspace, found)
    job_id = owner.api.get(f"/api/v1/experiments/{victim.things['experiment_id']}").json["experiment"]["jobId"]
    victim.things["job_id"] = job_id
    return victim


def running(rbac_admin: Api) -> bool:
    found = rbac_admin.get("/api/v1/experiments", limit=50).json["experiments"]
    return any(one["state"] == "STATE_RUNNING" for one in found)


def attack(
    master: MasterProcess, victim: Victim, token: str, me: int, without: Sequence[str] = ()
) -> dict[str, tuple[int, bytes]]:
    """What everything answers; nothing of the victim's may be different afterwards."""
    engine: Engine = make_engine(EmbeddedServer(master.data).url, pool_size=2)
    try:
        before = fingerprint(engine, victim)
        walker = Walker(master.url, token, {**victim.things, "me": me})
        walker.walk(without)
        after = fingerprint(engine, victim)
    finally:
        engine.dispose()
    assert {kind: digest for kind, digest in after.items() if digest != before[kind]} == {}
    assert victim.person.api.get("/api/v1/me").status == 200
    assert [key for key, (status, _) in walker.answers.items() if status >= 500 and status not in (501, 503)] == []
    return walker.answers


def leaks(answers: dict[str, tuple[int, bytes]], word: str) -> list[str]:
    """Which answers hold the word, beside names that the caller has asked for."""
    asked = re.compile(rb"There is no (?:model|template) '?[mt]-" + word.encode())
    return [
        key for key, (_, content) in answers.items() if word.encode() in asked.sub(b"", content) and key not in PUBLIC
    ]


@pytest.mark.parametrize("token", ["", "garbage", "alloc:1.1.1:00"], ids=["none", "garbage", "forged"])
def test_without_a_token_there_is_nothing(rbac: tuple[MasterProcess, Victim], token: str) -> None:
    master, victim = rbac
    answers = attack(master, victim, token, 0)
    closed = [key for key in answers if ENDPOINTS[key] is not Rule.PROXY]  # those: test_pages.py
    open_ones = [key for key in closed if answers[key][0] not in (400, 401, 404)]
    assert open_ones == []
    assert leaks(answers, victim.word) == []


@pytest.mark.parametrize("role", [None, VIEWER, WORKSPACE_ADMIN], ids=["no role", "viewer", "workspace admin"])
def test_user_without_role_there_reaches_nothing(
    rbac: tuple[MasterProcess, Victim], rbac_admin: Api, role: int | None
) -> None:
    master, victim = rbac
    mallory = person(rbac_admin)
    if role is not None:
        give(rbac_admin, role, mallory.id, workspace_of(rbac_admin)[0])
    answers = attack(master, victim, mallory.api.token, mallory.id)
    assert leaks(answers, victim.word) == []
    placed = [key for key in ROUTES if isinstance(ENDPOINTS[key], Permission) and not words(key).isdisjoint(PLACED)]
    assert {key: answers[key][0] for key in placed if answers[key][0] not in (400, 403, 404)} == {}


def test_job_of_another_user_reaches_nothing_with_roles(rbac: tuple[MasterProcess, Victim], rbac_admin: Api) -> None:
    master, victim = rbac
    mallory = person(rbac_admin)
    workspace, project = workspace_of(rbac_admin)
    give(rbac_admin, EDITOR, mallory.id, workspace)
    (job,) = jobs_of(master, mallory.api, create(mallory.api, config(), projectId=project))
    answers = attack(master, victim, job.api.token, mallory.id)
    assert leaks(answers, victim.word) == []


def test_a_viewer_of_the_workspace_changes_nothing_in_it(rbac: tuple[MasterProcess, Victim], rbac_admin: Api) -> None:
    master, victim = rbac
    mallory = person(rbac_admin)
    give(rbac_admin, VIEWER, mallory.id, victim.things["workspace_id"])
    answers = attack(master, victim, mallory.api.token, mallory.id)
    assert answers["GET /api/v1/experiments/{experiment_id}"][0] == 200


def test_a_colleagues_job_in_the_same_workspace_changes_nothing(
    rbac: tuple[MasterProcess, Victim], rbac_admin: Api
) -> None:
    master, victim = rbac
    mallory = person(rbac_admin)
    give(rbac_admin, EDITOR, mallory.id, victim.things["workspace_id"])
    number = create(mallory.api, config(), projectId=victim.things["project_id"])
    (job,) = jobs_of(master, mallory.api, number)
    answers = attack(master, victim, job.api.token, mallory.id)
    assert answers["GET /api/v1/trials/{trial_id}"][0] == 200
    assert answers["POST /api/v1/checkpoints"][0] == 403


@pytest.mark.parametrize("token", ["", "garbage"], ids=["none", "garbage"])
def test_without_roles_invalid_token_sees_nothing(basic: tuple[MasterProcess, Victim], token: str) -> None:
    master, victim = basic
    assert leaks(attack(master, victim, token, 0), victim.word) == []


def test_an_ordinary_user_changes_nothing_of_a_colleagues(basic: tuple[MasterProcess, Victim], admin: Api) -> None:
    """Without roles everybody sees everything; nobody changes what is not theirs."""
    master, victim = basic
    mallory = person(admin)
    answers = attack(master, victim, mallory.api.token, mallory.id, SHARED)
    administration = [key for key in ROUTES if ENDPOINTS[key] in ADMINISTRATORS and key not in MASKED]
    (log,) = (answers[key][1].decode() for key in MASKED)
    assert all(json.loads(line)["result"]["logEntry"]["message"].endswith(": ********") for line in log.splitlines())
    assert {key: answers[key][0] for key in administration if answers[key][0] not in (400, 403, 404)} == {}


def test_a_job_changes_nothing_of_a_colleagues(basic: tuple[MasterProcess, Victim], admin: Api) -> None:
    master, victim = basic
    mallory = person(admin)
    (job,) = jobs_of(master, mallory.api, create(mallory.api, config()))
    attack(master, victim, job.api.token, mallory.id)


# -- what is there, and may not be seen -------------------------------------------------------------------------------

# Names that are unique on the whole site: whoever makes one learns that it is taken.
UNIQUE = ("POST /api/v1/templates/{template_name}", "PUT /api/v1/templates/{template_name}")
# Of users, groups, tokens and the site, which everybody sees, and words that name nothing of a workspace.
KNOWN = (
    *("user_id", "username", "group_id", "token_id", "webhook_id", "pool_name", "agent_id", "slot_id", "token", "name"),
    *("workload_type", "resources_id", "label", "path", "rest", "version", "key", "alias"),
)


def absent(things: Json) -> Json:
    """The same things under names that nothing has."""
    found = dict(things)
    for name, value in things.items():
        if name in KNOWN:
            continue
        if name in ("uuid", "checkpoint_uuid", "job_id"):
            found[name] = str(uuid.uuid4())
        elif isinstance(value, int):
            found[name] = 2_000_000_000 + len(found)
        elif name == "allocation_id":
            found[name] = "2000000000.2000000000.1"
        else:
            found[name] = f"absent{uuid.uuid4().hex[:12]}"
    found["checkpoint_uuid"] = found["uuid"]
    return found


def test_hidden_objects_are_answered_like_missing_ones(rbac: tuple[MasterProcess, Victim], rbac_admin: Api) -> None:
    """Somebody with every right, in another workspace: neither that a number exists, nor where."""
    master, victim = rbac
    mallory = person(rbac_admin)
    elsewhere, _ = workspace_of(rbac_admin)
    give(rbac_admin, WORKSPACE_ADMIN, mallory.id, elsewhere)
    placed = [key for key in ROUTES if not words(key).isdisjoint(PLACED) or (BODIES.get(key))]
    others = [key for key in ROUTES if key not in placed or key in UNIQUE or ENDPOINTS[key] is Rule.AGENT]
    nowhere = absent({**victim.things, "me": mallory.id})
    there, gone = (
        Walker(master.url, mallory.api.token, things) for things in ({**victim.things, "me": mallory.id}, nowhere)
    )
    there.walk(others)
    gone.walk(others)
    different = {}
    for key, (status, content) in there.answers.items():
        shown = content.decode(errors="replace")
        for name in sorted(nowhere, key=lambda name: -len(str(nowhere[name]))):
            shown = shown.replace(str(victim.things.get(name, "")) or "\0", str(nowhere[name]))
        wanted = gone.answers[key]
        hidden = re.sub(r"\d+", "N", wanted[1].decode(errors="replace"))
        if (status, re.sub(r"\d+", "N", shown)) != (wanted[0], hidden):
            different[key] = (status, content[:200], wanted)
    for key, what in different.items():
        print(key, what)
    assert different == {}
