"""Who may come in, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text

from tests.process.api.conftest import log_in
from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job, jobs_of
from tests.support.api.people import PASSWORD, enter, person
from tests.support.master import MasterProcess, wait_for
from trainmaster.client.session_calls import hashed

LOGIN = "/api/v1/auth/login"


def test_a_password_goes_hashed_or_plain(master: MasterProcess, anonymous: Api) -> None:
    for sent, is_hashed in ((hashed(master.password), True), (master.password, False)):
        answer = anonymous.post(LOGIN, {"username": "determined", "password": sent, "isHashed": is_hashed})
        assert answer.status == 200
        assert answer.json["user"]["username"] == "determined"
        assert Api(master.url, answer.json["token"]).get("/api/v1/me").json["user"]["username"] == "determined"


def test_wrong_password_and_unknown_user_get_same_error(master: MasterProcess, anonymous: Api) -> None:
    wrong = anonymous.post(LOGIN, {"username": "determined", "password": "no", "isHashed": False})
    unknown = anonymous.post(LOGIN, {"username": "nobody-here", "password": master.password, "isHashed": False})
    plain_as_hash = anonymous.post(LOGIN, {"username": "determined", "password": master.password, "isHashed": True})
    assert [a.status for a in (wrong, unknown, plain_as_hash)] == [401, 401, 401]
    assert wrong.sentence.startswith("invalid credentials")
    assert wrong.content == unknown.content == plain_as_hash.content


def test_user_names_are_read_without_regard_to_case_and_spaces(master: MasterProcess, anonymous: Api) -> None:
    answer = anonymous.post(LOGIN, {"username": " Determined ", "password": master.password})
    assert answer.status == 200


def test_logging_out_ends_this_session_only(master: MasterProcess) -> None:
    first, second = (Api(master.url, log_in(master, "determined")) for _ in range(2))
    assert first.post("/api/v1/auth/logout").status == 200
    gone = first.get("/api/v1/me")
    assert gone.status == 401
    assert "log in" in gone.sentence
    assert second.get("/api/v1/me").status == 200


def test_an_expired_session_is_refused(master: MasterProcess, engine: Engine) -> None:
    api = Api(master.url, log_in(master, "determined"))
    with engine.begin() as connection:
        newest = "SELECT max(id) FROM user_sessions"
        connection.execute(text(f"UPDATE user_sessions SET expires_at = now() - interval '1 s' WHERE id = ({newest})"))
    assert api.get("/api/v1/me").status == 401


def test_an_inactive_user_is_refused(master: MasterProcess, engine: Engine, anonymous: Api) -> None:
    api = Api(master.url, log_in(master, "determined"))
    change = text("UPDATE users SET active = :active WHERE username = 'determined'")
    try:
        with engine.begin() as connection:
            connection.execute(change, {"active": False})
        known = anonymous.post(LOGIN, {"username": "determined", "password": master.password})
        for answer in (api.get("/api/v1/me"), known):
            assert (answer.status, answer.sentence.partition(":")[0]) == (403, "user is not active")
        # Nobody else is told.
        guessed = anonymous.post(LOGIN, {"username": "determined", "password": "Guess-1234"})
        assert (guessed.status, guessed.sentence.partition(":")[0]) == (401, "invalid credentials")
    finally:
        with engine.begin() as connection:
            connection.execute(change, {"active": True})


@pytest.mark.parametrize("token", ["", "x", "alloc:", "alloc:1.2.3:00", "alloc:ÿ:ÿ", "a" * 8000])
def test_missing_or_malformed_token_is_refused(anonymous: Api, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = anonymous.call("GET", "/api/v1/me", headers=headers)
    assert answer.status == 401
    assert answer.error["reason"] == "Unauthenticated"


def test_the_token_is_also_taken_from_a_cookie(master: MasterProcess, anonymous: Api) -> None:
    token = log_in(master, "determined")
    assert anonymous.call("GET", "/api/v1/me", headers={"Cookie": f"auth={token}"}).status == 200


def test_job_token_cannot_do_what_users_do(job: Job) -> None:
    for method, path in (
        ("POST", "/api/v1/auth/logout"),
        ("GET", "/api/v1/experiments"),
        ("POST", f"/api/v1/experiments/{job.experiment_id}/kill"),
        ("DELETE", f"/api/v1/experiments/{job.experiment_id}"),
        ("GET", "/api/v1/users"),
    ):
        assert job.api.call(method, path, {} if method == "POST" else None).status == 403, path
    assert job.api.get(f"/api/v1/trials/{job.trial_id}").status == 200


def test_a_jobs_token_is_good_for_its_own_attempt(
    master: MasterProcess, user: Api, job: Job, experiment: Callable[..., int]
) -> None:
    other = jobs_of(master, user, experiment())[0]
    attempt, trial = (f"allocations/{other.allocation_id}", f"trials/{other.trial_id}")
    for answer in (
        replace(other, api=job.api).lease(),
        replace(other, api=job.api).send([other.validation(1, loss=0.0)]),
        job.api.post(f"/api/x1/{attempt}/exit", {"node_rank": 0, "exit_code": 0}),
        job.api.post(f"/api/v1/{attempt}/all_gather", {"requestUuid": "x", "numPeers": 1, "data": {}}),
        job.api.post(f"/api/v1/{attempt}/signals/ack_preemption"),
        job.api.get(f"/api/v1/{attempt}/signals/preemption"),
        job.api.get(f"/api/v1/{attempt}"),
        job.api.post(f"/api/v1/{trial}/runner/metadata", {"state": "mine"}),
        job.api.get(f"/api/v1/tasks/{other.task_id}/context_directory"),
    ):
        assert answer.status == 403, answer.content
    told = f"refused POST /api/x1/{attempt}/exit from 127.0.0.1: This token does not belong to the allocation"
    assert told in master.log.read_text()


def test_a_refused_call_is_one_line_in_the_log(master: MasterProcess, anonymous: Api) -> None:
    assert anonymous.get("/api/v1/templates/a%0A2026-01-01%20ERROR%20forged").status == 401
    assert "refused GET /api/v1/templates/a%0A2026-01-01%20ERROR%20forged from 127" in master.log.read_text()


def test_password_guesses_delay_only_the_guessed_user(master: MasterProcess, anonymous: Api, admin: Api) -> None:
    someone = person(admin)
    right = {"username": someone.name, "password": hashed(PASSWORD), "isHashed": True}
    wrong = {**right, "password": "0" * 128}
    assert [anonymous.post(LOGIN, wrong).status for _ in range(5)] == [401] * 5

    def refused_twice() -> tuple[Answer, Answer] | None:
        """Each guess that comes through doubles the wait: a slow machine's second one is within it at some time."""
        found = next(answer for _ in range(100) if (answer := anonymous.post(LOGIN, wrong)).status != 401)
        return (found, again) if (again := anonymous.post(LOGIN, right)).status == 429 else None

    held, right_but_held = wait_for(refused_twice, "a guess that is held back")
    assert held.status == right_but_held.status == 429  # the right password is no way to find out that it is
    assert held.error["reason"] == "ResourceExhausted"
    assert 1 <= int(held.headers["retry-after"]) <= 300
    other = person(admin)
    assert enter(master.url, other.name).status == 200
    assert someone.api.get("/api/v1/me").status == 200  # sessions go on
    wait_for(lambda: anonymous.post(LOGIN, right).status == 200, "the end of the wait")
    assert f"attempts to log in as {someone.name!r} from 127.0.0.1 are held back" in master.log.read_text()


def test_password_checks_do_not_delay_other_requests(anonymous: Api, user: Api) -> None:
    """More log-ins at once than there are threads for all requests."""
    done: list[int] = []

    def guess(number: int) -> None:
        done.append(anonymous.post(LOGIN, {"username": f"guess-{number}", "password": "x"}).status)

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    assert user.get("/api/v1/me").status == 200
    for thread in threads:
        thread.join()
    assert set(done) == {401}
