"""`/api/x1/live`: pages are told when what they show has changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.process.api.conftest import ONE_SLOT, log_in
from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import assigned, give, person, workspace_of
from tests.support.master import MasterProcess, serving, wait_for
from trainmaster.master.admission.read_turns import BURST, READS, ReadTurns
from trainmaster.master.admission.unauthenticated import MOST_UNAUTHENTICATED, UNAUTHENTICATED_OF_ADDRESS
from trainmaster.master.api import live
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.organisation import RoleAssignment
from trainmaster.master.services import live_changes
from trainmaster.master.services.store import Store

Json = dict[str, Any]
DEADLINE = 60.0  # seconds
FEW = """
resource_manager: {type: local, slots: 1, poll_interval: 0.5}
limits: {live_connections: 2}
"""


@dataclass
class Follower:
    """A page: `told` holds the messages to it."""

    socket: ClientConnection
    told: list[Json] = field(default_factory=list)

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def hear(self) -> Json:
        message: Json = json.loads(self.socket.recv(timeout=DEADLINE))
        self.told.append(message)
        return message

    def until(self, topic: str) -> Json:
        """The next message about a topic. Messages come without news too: hearing them is no progress."""
        latest = time.monotonic() + DEADLINE
        while (message := self.hear()).get("topic") != topic:
            assert time.monotonic() < latest, f"no message about {topic} within {DEADLINE:.0f} s"
        return message

    def closed(self) -> tuple[int, str]:
        """Code and reason, once it is closed."""
        with pytest.raises(ConnectionClosed) as closed:
            self.until("nothing")
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code, closed.value.rcvd.reason


def ticket(api: Api, purpose: str = "live") -> str:
    answer = api.post("/api/x1/tickets", {"purpose": purpose})
    assert answer.status == 200, answer.content
    return str(answer.json["ticket"])


@contextlib.contextmanager
def opened(api: Api) -> Iterator[Follower]:
    with connect(f"ws{api.url[4:]}/api/x1/live", proxy=None, open_timeout=DEADLINE) as socket:
        yield Follower(socket)


@contextlib.contextmanager
def following(api: Api, *topics: str) -> Iterator[Follower]:
    with opened(api) as follower:
        follower.say(ticket=ticket(api), follow=topics)
        yield follower


def first_hints(follower: Follower, topics: Sequence[str]) -> None:
    assert [follower.hear() for _ in topics] == [{"topic": topic, "seq": 1} for topic in topics]


def observed_state(engine: Engine, job: Job) -> str:
    with engine.connect() as connection:
        query = text("SELECT observed_state FROM allocations WHERE id = :id")
        return str(connection.scalar(query, {"id": job.allocation_id}))


# -- what is told ---------------------------------------------------------------------------------------------------


def test_each_topic_begins_with_a_hint(user: Api, job: Job) -> None:
    """Whatever has happened before, or while there was no connection, is read then."""
    topics = ("mine", "list", f"experiment:{job.experiment_id}", f"trial:{job.trial_id}", f"log:{job.task_id}")
    with following(user, *topics) as follower:
        first_hints(follower, topics)
        follower.say(follow=["list", "trial:999999"])
        assert "There is no trial 999999." in follower.until("trial:999999")["error"]
        follower.say(follow=["mine", "list"])
        assert follower.until("mine") == {"topic": "mine", "seq": 1}


@pytest.mark.parametrize("group", ["training", "validation"])
def test_reports_are_news_of_their_trial_and_experiment(user: Api, job: Job, group: str) -> None:
    experiment, trial = f"experiment:{job.experiment_id}", f"trial:{job.trial_id}"
    with following(user, experiment, trial) as follower:
        first_hints(follower, (experiment, trial))
        for steps in (1, 2, 3):
            report = job.training(steps, loss=1.0) if group == "training" else job.validation(steps, loss=1.0)
            assert job.send([report]).status == 200
            known = len(follower.told)
            while {experiment, trial} - {one.get("topic") for one in follower.told[known:]}:
                follower.hear()
    for topic in (experiment, trial):
        numbers = [one["seq"] for one in follower.told if one.get("topic") == topic]
        assert numbers == list(range(1, len(numbers) + 1))


def test_heartbeats_are_no_news(user: Api, job: Job, engine: Engine) -> None:
    trial, log = f"trial:{job.trial_id}", f"log:{job.task_id}"
    wait_for(lambda: observed_state(engine, job) == "QUEUED", "the first observation of the job, which is news")
    with following(user, trial, log) as follower:
        first_hints(follower, (trial, log))
        assert job.send([]).status == 200
        assert job.send([{"t": time.time(), "line": "one"}], stream="log-0").status == 200
        assert follower.until(log)["seq"] == 2
    assert [one for one in follower.told[2:] if one.get("topic") == trial] == []


def test_states_are_news_of_experiment_list_and_owner(user: Api, admin: Api, experiment: Callable[..., int]) -> None:
    number = experiment()
    mine, its = person(admin), f"experiment:{number}"
    with following(user, "mine", "list", its) as follower, following(mine.api, "mine") as other:
        first_hints(follower, ("mine", "list", its))
        first_hints(other, ("mine",))
        assert user.post(f"/api/v1/experiments/{number}/pause").status == 200
        wanted = {"mine", "list", its}
        while wanted:
            wanted -= {follower.hear().get("topic")}
        create(mine.api, config(name="of another user"))
        assert other.until("mine")["seq"] == 2


def test_changes_from_another_master_are_told_too(user: Api, job: Job, engine: Engine) -> None:
    topic = f"experiment:{job.experiment_id}"
    with following(user, topic) as follower:
        first_hints(follower, (topic,))
        with engine.begin() as connection:
            connection.execute(
                text("SELECT pg_notify(:channel, :payload)"),
                {"channel": live_changes.CHANNEL, "payload": f"another trial:999999 {topic}"},
            )
        assert follower.until(topic)["seq"] == 2


@pytest.fixture
def beside(master: MasterProcess) -> Iterator[MasterProcess]:
    """A second master on the same database; the first one leads."""
    url = make_url(EmbeddedServer(master.data).url)
    database = {"host": url.query["host"], "user": url.username, "name": url.database}
    with serving(f"{ONE_SLOT}\ndb: {json.dumps(database)}") as process:
        yield process


def test_pages_of_one_master_hear_of_reports_to_another(user: Api, job: Job, beside: MasterProcess) -> None:
    there = Api(beside.url, user.token)
    trial, log = f"trial:{job.trial_id}", f"log:{job.task_id}"
    with following(there, trial, log) as follower:
        first_hints(follower, (trial, log))
        assert job.send([job.training(1, loss=1.0)]).status == 200
        assert follower.until(trial)["seq"] >= 2
        assert job.send([{"t": time.time(), "line": "one"}], stream="log-0").status == 200
        assert follower.until(log)["seq"] >= 2
        assert there.get(f"/api/x1/trials/{job.trial_id}/board").json["trial"]["steps"] == 1


def test_changed_subjects_are_packed_into_notification_size() -> None:
    subjects = [f"trial:{number}" for number in range(5000)]
    payloads = list(live_changes.packed("sender", subjects))
    assert all(len(payload) < 8000 for payload in payloads)
    assert sorted(one for payload in payloads for one in payload.split(" ")[1:]) == sorted(subjects)
    assert len(payloads) == -(-sum(len(one) + 1 for one in subjects) // 7000)


def test_all_pages_share_one_read_rate() -> None:
    async def scene() -> list[float]:
        turns, given = ReadTurns(), []
        for number in range(60):
            turns.ask(number % 7, lambda: given.append(time.monotonic()))
        while len(given) < 60:
            await asyncio.sleep(0.01)
        return given

    given = asyncio.run(scene())
    at_once = round(READS * BURST)
    assert given[-1] - given[0] >= (60 - at_once - 1) / READS


# -- who may hear ---------------------------------------------------------------------------------------------------


def test_following_topic_requires_read_permission(rbac_admin: Api, rbac_master: MasterProcess) -> None:
    (here, project), _ = workspace_of(rbac_admin), None
    number = create(rbac_admin, config(name="ruled"), projectId=project)
    (job,) = jobs_of(rbac_master, rbac_admin, number)
    someone = person(rbac_admin)
    topics = (f"experiment:{number}", f"trial:{job.trial_id}", f"log:{job.task_id}", "list")
    with following(someone.api, *topics, "mine") as follower:
        for topic in topics:
            message = follower.hear()
            assert message["topic"] == topic
            assert "permission" in message["error"] or "roles" in message["error"]
        assert follower.hear() == {"topic": "mine", "seq": 1}
        give(rbac_admin, 4, someone.id, here)
        follower.say(follow=topics)
        first_hints(follower, topics)
        assert rbac_admin.post("/api/v1/roles/remove-assignments", assigned(4, someone.id, here)).status == 200
        ended: set[str] = set()
        while ended != set(topics):
            message = follower.hear()
            if "error" in message:
                ended.add(message["topic"])
    rbac_admin.post(f"/api/v1/experiments/{number}/kill")


def test_a_right_counts_before_the_connection_hears_of_it(rbac_admin: Api, rbac_master: MasterProcess) -> None:
    """The page that somebody opens because of a new role asks before the role's wake-up is there."""
    (here, project), _ = workspace_of(rbac_admin), None
    topic = f"experiment:{create(rbac_admin, config(name='granted'), projectId=project)}"
    someone = person(rbac_admin)
    with following(someone.api, topic) as follower:
        assert "permission" in follower.hear()["error"]
        engine = make_engine(EmbeddedServer(rbac_master.data).url, pool_size=1)
        with Store(engine).transaction() as session:  # no wake-up, unlike the API's
            session.add(RoleAssignment(role_id=4, user_id=someone.id, workspace_id=here))
        engine.dispose()
        follower.say(follow=[topic])
        first_hints(follower, [topic])
    rbac_admin.post(f"/api/v1/experiments/{topic.partition(':')[2]}/kill")


@pytest.mark.parametrize(
    ("topic", "sentence"),
    [
        ("experiment:999999", "There is no experiment 999999."),
        ("experiment:x", "is not the number"),
        ("experiment:", "There is no topic"),
        ("log:no such", "There is no topic"),
        ("log:nosuch", "There is no task nosuch."),
        ("everything", "There is no topic 'everything'; there are mine, list, experiment:ID"),
    ],
)
def test_following_unknown_topic_is_an_error(user: Api, topic: str, sentence: str) -> None:
    with following(user, topic, "mine") as follower:
        assert sentence in follower.hear()["error"]
        assert follower.hear() == {"topic": "mine", "seq": 1}


def test_a_ticket_is_good_once_and_for_this(user: Api, anonymous: Api, job: Job) -> None:
    used = ticket(user)
    with opened(user) as follower:
        follower.say(ticket=used, follow=["mine"])
        first_hints(follower, ("mine",))
        follower.say(ticket=used, follow=["mine"])
        assert follower.closed() == (1008, "The ticket belongs into the first message, and nowhere else.")
    for wrong in (used, ticket(user, "stream"), "", "x"):
        with opened(anonymous) as follower:
            follower.say(ticket=wrong, follow=["mine"])
            code, reason = follower.closed()
            assert (code, "The ticket is not valid" in reason) == (1008, True)
    assert job.api.post("/api/x1/tickets", {"purpose": "live"}).status == 403
    assert (user.get("/api/x1/live").status, anonymous.get("/api/x1/live").status) == (426, 401)


def test_ended_session_closes_connection(admin: Api) -> None:
    someone = person(admin)
    with following(someone.api, "mine") as follower:
        first_hints(follower, ("mine",))
        assert someone.api.post("/api/v1/auth/logout").status == 200
        assert follower.closed() == (1008, "Your session has ended: log in again.")


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("{", 1008),
        ("[]", 1008),
        (b"\x00", 1008),
        ('{"follow": "mine"}', 1008),
        ('{"follow": [""]}', 1008),
        ('{"follow": [1]}', 1008),
        ('{"follow": [], "more": 1}', 1008),
        (json.dumps({"follow": [f"trial:{number}" for number in range(21)]}), 1008),
        (json.dumps({"follow": ["x" * 201]}), 1008),
        ('{"follow": [' + " " * 9000 + "]}", 1009),
    ],
)
def test_invalid_message_closes_connection(user: Api, said: str | bytes, code: int) -> None:
    with opened(user) as first:
        first.socket.send(said)
        assert first.closed()[0] == code
    with following(user, "mine") as follower:
        first_hints(follower, ("mine",))
        follower.socket.send(said)
        found, reason = follower.closed()
        assert found == code
        assert reason


def test_connection_that_sends_too_many_messages_is_closed(user: Api) -> None:
    with following(user, "mine") as follower:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(live.MOST_MESSAGES + 1):
                follower.say(follow=["mine"])
        assert follower.closed() == (1008, "Send at most 30 messages in 10 s.")


def test_live_connections_are_limited_and_closed_on_stop() -> None:
    with serving(FEW) as master:
        user = Api(master.url, log_in(master, "determined"))
        with following(user, "mine") as first, following(user, "mine") as second, following(user, "mine") as third:
            code, reason = third.closed()
            assert (code, "limits.live_connections" in reason) == (1013, True)
            for follower in (first, second):
                first_hints(follower, ("mine",))
            with contextlib.ExitStack() as stack:
                strangers = [stack.enter_context(opened(user)) for _ in range(UNAUTHENTICATED_OF_ADDRESS + 1)]
                assert strangers[0].closed() == (
                    1013,
                    "Too many live connections wait for their first message: try again.",
                )
                assert strangers[-1].closed()[1].startswith("No message came within 10 s")
            with following(user, "mine") as again:
                assert again.closed()[0] == 1013
            master.stop()
            assert first.closed() == second.closed() == (1001, "The master stops.")
            master.start()


# -- attackers ------------------------------------------------------------------------------------------------------


def test_topics_of_one_user_do_not_delay_another_users_pages(user: Api, admin: Api, job: Job) -> None:
    mallory = person(admin)
    with following(user, "mine") as page:
        first_hints(page, ("mine",))
        for _ in range(6):
            with following(mallory.api, "mine") as flood:
                names = [f"log:{job.task_id}", f"trial:{job.trial_id}", f"experiment:{job.experiment_id}", "list"]
                for number in range(live.MOST_MESSAGES - 2):
                    flood.say(follow=names if number % 2 else [])
        began = time.monotonic()
        topic = f"trial:{job.trial_id}"
        page.say(follow=["mine", topic])
        assert page.until(topic) == {"topic": topic, "seq": 1}
        assert time.monotonic() - began < 2


def test_users_take_turns_and_withdrawn_turns_are_dropped() -> None:
    async def scene() -> tuple[list[str], int]:
        turns, given = ReadTurns(), []
        left = [turns.ask(1, lambda: given.append("mallory")) for _ in range(500)]
        turns.ask(2, lambda: given.append("other"))
        while "other" not in given:
            await asyncio.sleep(0.01)
        order = list(given)
        for turn in left:
            turns.withdraw(turn)
        asked = time.monotonic()
        turns.ask(3, lambda: given.append("third"))
        while "third" not in given:
            await asyncio.sleep(0.01)
        assert time.monotonic() - asked < 1
        return order, len(turns._waiting)

    order, waiting = asyncio.run(scene())
    assert len(order) <= READS * BURST + 3  # those that came at once, and at most one in between
    assert waiting == 0


def test_unauthenticated_connections_lock_no_user_out(user: Api) -> None:
    """Neither one who shows a ticket in the first message, nor one whose request shows a session."""
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_UNAUTHENTICATED + 10):
            stack.enter_context(opened(user))
        with following(user, "mine") as page:
            first_hints(page, ("mine",))
        headers = {"Authorization": f"Bearer {user.token}"}
        url = f"ws{user.url[4:]}/api/x1/live"
        with connect(url, proxy=None, open_timeout=DEADLINE, additional_headers=headers) as socket:
            page = Follower(socket)
            for _ in range(UNAUTHENTICATED_OF_ADDRESS + 1):  # later connections do not push it out
                stack.enter_context(opened(user))
            page.say(ticket=ticket(user), follow=["mine"])
            first_hints(page, ("mine",))
