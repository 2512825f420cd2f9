"""`/stream`: what changes about projects, models and model versions, told as it happens."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.process.api.test_checkpoint_removal import save
from tests.support.api.browser import Browser
from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.api.people import assigned, give, person, workspace_of
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.services.ranges import Ranges

Json = dict[str, Any]
DEADLINE = 60.0  # seconds
KINDS = {"project": "projects", "model": "models", "modelversion": "modelversions"}


@dataclass
class Follower:
    """One who follows, and what they know by now: what a client keeps."""

    socket: ClientConnection
    known: dict[str, dict[int, Json]] = field(default_factory=lambda: {kind: {} for kind in KINDS.values()})
    told: list[Json] = field(default_factory=list)
    asked: int = 0

    def ask(self, **subscribe: Any) -> list[Json]:
        """Subscribe, saying what is known; what was told until all is there."""
        self.asked += 1
        since = {kind: max([row["seq"] for row in rows.values()], default=0) for kind, rows in self.known.items()}
        body = {
            "sync_id": str(self.asked),
            "known": {kind: str(Ranges.of(rows)) for kind, rows in self.known.items()},
            "subscribe": {kind: {**spec, "since": since[kind]} for kind, spec in subscribe.items()},
        }
        self.socket.send(json.dumps(body))
        while self.hear() != {"sync_id": str(self.asked), "complete": False}:
            pass
        begun = len(self.told)
        while self.hear() != {"sync_id": str(self.asked), "complete": True}:
            pass
        return self.told[begun:-1]

    def hear(self) -> Json:
        """The next message, taken note of."""
        message: Json = json.loads(self.socket.recv(timeout=DEADLINE))
        self.told.append(message)
        for key, value in message.items():
            if key in KINDS:
                self.known[KINDS[key]][value["id"]] = value
            elif key.endswith("_deleted"):
                gone = Ranges.parse(value)
                rows = self.known[key.removesuffix("_deleted")]
                for number in [number for number in rows if number in gone]:
                    del rows[number]
        return message

    def until(self, there: Callable[[], bool]) -> None:
        while not there():
            self.hear()


@contextlib.contextmanager
def following(api: Api, **options: Any) -> Iterator[Follower]:
    headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    headers |= options.pop("headers", {})
    options |= {"additional_headers": headers, "proxy": None, "open_timeout": DEADLINE}
    with connect(f"ws{api.url[4:]}/stream", **options) as socket:
        yield Follower(socket)


@pytest.fixture
def workspace(user: Api) -> int:
    return int(user.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"])


def project(api: Api, workspace: int, name: str = "") -> Json:
    body = {"name": name or uuid.uuid4().hex[:8]}
    found: Json = api.post(f"/api/v1/workspaces/{workspace}/projects", body).json["project"]
    return found


# -- what is told -------------------------------------------------------------------------------------------------


def test_a_project_from_its_making_to_its_end(user: Api, workspace: int) -> None:
    first = project(user, workspace, "first")
    with following(user) as follower:
        (message,) = follower.ask(projects={"workspace_ids": [workspace]})
        found = message["project"]
        assert {**found, "seq": 0, "created_at": ""} == {
            **{"id": first["id"], "name": "first", "description": "", "archived": False, "created_at": "", "notes": []},
            **{"workspace_id": workspace, "user_id": first["userId"], "immutable": False, "state": "UNSPECIFIED"},
            **{"key": first["key"], "seq": 0},
        }
        assert found["seq"] > 0
        assert found["created_at"].endswith("Z")
        rows = follower.known["projects"]
        second = project(user, workspace)
        follower.until(lambda: second["id"] in rows)
        user.call("PATCH", f"/api/v1/projects/{first['id']}", {"name": "renamed"})
        follower.until(lambda: rows[first["id"]]["name"] == "renamed")
        assert rows[first["id"]]["seq"] > rows[second["id"]]["seq"]
        user.post(f"/api/v1/projects/{first['id']}/notes", {"name": "n", "contents": "c"})
        follower.until(lambda: bool(rows[first["id"]]["notes"]))
        user.post(f"/api/v1/workspaces/{workspace}/archive")
        follower.until(lambda: all(row["archived"] for row in rows.values()))
        user.post(f"/api/v1/workspaces/{workspace}/unarchive")
        user.call("DELETE", f"/api/v1/projects/{first['id']}")
        follower.until(lambda: first["id"] not in rows)
        user.call("DELETE", f"/api/v1/workspaces/{workspace}")
        follower.until(lambda: not rows)
    assert {next(iter(message)) for message in follower.told} <= {"sync_id", "project", "projects_deleted"}


def test_moved_project_leaves_followers_of_its_old_workspace(user: Api, workspace: int) -> None:
    mover = project(user, workspace)["id"]
    elsewhere = user.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
    with following(user) as stays, following(user) as gets, following(user) as goes:
        stays.ask(projects={"workspace_ids": [workspace]})
        gets.ask(projects={"workspace_ids": [elsewhere]})
        goes.ask(projects={"project_ids": [mover]})
        body = {"destinationWorkspaceId": elsewhere, "projectId": mover}
        assert user.post(f"/api/v1/projects/{mover}/move", body).status == 200
        stays.until(lambda: not stays.known["projects"])
        gets.until(lambda: mover in gets.known["projects"])
        goes.until(lambda: goes.known["projects"][mover]["workspace_id"] == elsewhere)


def test_models_and_their_versions(user: Api, workspace: int, job: Job, tmp_path: Path) -> None:
    checkpoint = save(job, tmp_path, 1)
    body = {"name": f"m-{uuid.uuid4().hex[:8]}", "workspaceId": workspace, "labels": ["a"], "metadata": {"k": [1]}}
    model = user.post("/api/v1/models", body).json["model"]
    with following(user) as follower:
        follower.ask(models={"workspace_ids": [workspace]}, modelversions={"model_ids": [model["id"]]})
        models, versions = follower.known["models"], follower.known["modelversions"]
        assert (models[model["id"]]["labels"], models[model["id"]]["metadata"]) == (["a"], {"k": [1]})
        assert models[model["id"]]["last_updated_time"] == model["lastUpdatedTime"]
        path = f"/api/v1/models/{model['name']}"
        made = user.post(f"{path}/versions", {"checkpointUuid": checkpoint, "comment": "good"})
        assert made.status == 200, made.content
        follower.until(lambda: bool(versions))
        (version,) = versions.values()
        assert (version["version"], version["checkpoint_uuid"], version["comment"]) == (1, checkpoint, "good")
        assert (version["model_id"], version["workspace_id"]) == (model["id"], str(workspace))
        elsewhere = user.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
        user.post(f"{path}/move", {"destinationWorkspaceId": elsewhere})
        follower.until(lambda: not models and versions[version["id"]]["workspace_id"] == str(elsewhere))
        assert user.call("DELETE", path).status == 200
        follower.until(lambda: not versions)


def test_new_subscription_replaces_previous_one(user: Api, workspace: int) -> None:
    project(user, workspace)
    with following(user) as follower:
        assert len(follower.ask(projects={"workspace_ids": [workspace]})) == 1
        assert follower.ask(projects={"workspace_ids": [workspace]}) == []
        (gone,) = follower.ask(projects={})
        assert list(gone) == ["projects_deleted"]
        assert follower.ask() == []


# -- nothing is lost ----------------------------------------------------------------------------------------------


def test_reconnected_follower_hears_only_missed_changes(user: Api, workspace: int) -> None:
    kept, changed, removed = (project(user, workspace)["id"] for _ in range(3))
    with following(user) as follower:
        follower.ask(projects={"workspace_ids": [workspace]})
    user.call("PATCH", f"/api/v1/projects/{changed}", {"description": "news"})
    user.call("DELETE", f"/api/v1/projects/{removed}")
    added = project(user, workspace)["id"]
    with following(user) as again:
        again.known = follower.known
        told = again.ask(projects={"workspace_ids": [workspace]})
        assert told[0] == {"projects_deleted": str(removed)}
        assert [message["project"]["id"] for message in told[1:]] == [changed, added]
        assert set(again.known["projects"]) == {kept, changed, added}
    with following(user) as strange:  # who remembers a number from before the database was set back
        strange.known = {**again.known, "projects": {kept: {**again.known["projects"][kept], "seq": 2**60}}}
        assert len(strange.ask(projects={"workspace_ids": [workspace]})) == 3


def test_follower_with_broken_connections_misses_no_change(user: Api, workspace: int, engine: Engine) -> None:
    """Changes whose transactions overlap and end in any order, between breaks of the connection."""
    ids = [project(user, workspace)["id"] for _ in range(8)]

    def write(seed: int) -> None:
        chance = random.Random(seed)
        for step in range(25):
            with engine.begin() as connection:
                for number in sorted(chance.sample(ids, 2)):
                    words = {"id": number, "text": f"{seed}.{step}"}
                    connection.execute(text("UPDATE projects SET description = :text WHERE id = :id"), words)
                    if chance.random() < 0.3:
                        connection.execute(text("SELECT pg_sleep(0.01)"))

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]  # as many as the engine connects
    for writer in writers:
        writer.start()
    known: dict[str, dict[int, Json]] = {kind: {} for kind in KINDS.values()}
    while any(writer.is_alive() for writer in writers):
        with following(user) as follower:
            follower.known = known
            follower.ask(projects={"workspace_ids": [workspace]})
            with contextlib.suppress(TimeoutError):
                follower.socket.recv(timeout=0.05)  # and lost: what was told is not taken note of
    for writer in writers:
        writer.join()
    with following(user) as follower:
        follower.known = known
        follower.ask(projects={"workspace_ids": [workspace]})

        def agrees() -> bool:
            truth = user.get(f"/api/v1/workspaces/{workspace}/projects").json["projects"]
            return {row["id"]: row["description"] for row in truth} == {
                number: row["description"] for number, row in known["projects"].items()
            }

        follower.until(agrees)


def test_followers_hear_changes_by_another_process(user: Api, workspace: int, engine: Engine) -> None:
    """The database tells, not the master."""
    number = project(user, workspace)["id"]
    with following(user) as follower:
        follower.ask(projects={"workspace_ids": [workspace]})
        with engine.begin() as connection:
            connection.execute(text("UPDATE projects SET description = 'by hand' WHERE id = :id"), {"id": number})
        follower.until(lambda: follower.known["projects"][number]["description"] == "by hand")


# -- who may hear -------------------------------------------------------------------------------------------------


def test_roles_decide_which_projects_follower_sees(rbac_admin: Api) -> None:
    (here, mine), (elsewhere, other) = workspace_of(rbac_admin), workspace_of(rbac_admin)
    someone = person(rbac_admin)
    give(rbac_admin, 4, someone.id, here)
    with following(someone.api) as follower:
        follower.ask(projects={"workspace_ids": [here, elsewhere], "project_ids": [other]})
        rows = follower.known["projects"]
        assert list(rows) == [mine]
        give(rbac_admin, 4, someone.id, elsewhere)
        follower.until(lambda: set(rows) == {mine, other})
        body = assigned(4, someone.id, here)
        assert rbac_admin.post("/api/v1/roles/remove-assignments", body).status == 200
        follower.until(lambda: set(rows) == {other})


def test_stream_requires_user_login(anonymous: Api, job: Job, user: Api, master: MasterProcess) -> None:
    for api, status in ((anonymous, 401), (Api(anonymous.url, "nonsense"), 401), (job.api, 403)):
        with pytest.raises(InvalidStatus) as refused, following(api):
            pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["error"]["error"]
    assert (user.get("/stream").status, anonymous.get("/stream").status) == (426, 401)


def test_ended_session_closes_connection(admin: Api, workspace: int, master: MasterProcess) -> None:
    someone = person(admin)
    with following(someone.api) as follower:
        follower.ask(projects={"workspace_ids": [workspace]})
        admin.call("PATCH", someone.path, {"active": False})
        with pytest.raises(ConnectionClosed) as closed:
            follower.until(lambda: False)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    wait_for(lambda: f"no more updates for {someone.name}: " in master.log.read_text(), "a line in the log")


def test_a_page_of_another_site_may_not_use_its_visitors_cookie(user: Api, master: MasterProcess) -> None:
    page = Browser(user.url)
    page.log_in("/login", "determined", master.password)
    cookie = {"Cookie": page.cookie_for("/stream")}
    with following(Api(user.url), headers=cookie, origin=page.origin) as follower:
        assert follower.ask() == []
    for elsewhere in ("http://evil.example", page.origin.replace("127.0.0.1", "localhost"), "null"):
        with pytest.raises(InvalidStatus, match="403"), following(Api(user.url), headers=cookie, origin=elsewhere):
            pass


@pytest.mark.parametrize(
    "said",
    [
        "{",
        "[]",
        "{}",
        b"\x00",
        '{"sync_id": "1", "known": {"projects": "x"}, "subscribe": {"projects": {"workspace_ids": [1]}}}',
        '{"sync_id": "1", "subscribe": {"projects": {"workspace_ids": [99999999999]}}}',
        '{"sync_id": "1", "subscribe": {"models": {"since": -1}}}',
    ],
)
def test_invalid_message_closes_connection(user: Api, said: str | bytes) -> None:
    with following(user) as follower:
        follower.socket.send(said)
        with pytest.raises(ConnectionClosed) as closed:
            follower.until(lambda: False)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert closed.value.rcvd.reason
