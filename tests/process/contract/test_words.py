"""What the published client makes of refusals, of parts of configurations and of names in snake_case."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from tests.process.api.conftest import log_in
from tests.process.contract.conftest import Reference
from tests.process.e2e.conftest import LOCAL
from tests.support.api.http import Api
from tests.support.master import serving
from tests.support.reference.batch import batch

REFUSED = """
from determined.common import api
from determined.common.api import authentication, errors

client.login()
session = client._determined._session
told = {}


def ask(name, call):
    try:
        call()
    except errors.BadRequestException as error:
        told[name] = [type(error).__name__, getattr(error, "status_code", None), str(error)]


master = session.master
ask("wrong password", lambda: authentication.login(master, "determined", "Guess-1234", None))
ask("unknown user", lambda: authentication.login(master, "nobody-here", "Guess-1234", None))
ask("nothing there", lambda: client.get_experiment(99999999))
client.create_workspace(sys.argv[1])
ask("taken", lambda: client.create_workspace(sys.argv[1]))
ask("switched off", lambda: authentication.login(master, sys.argv[2], sys.argv[3], None))
answer(told)
"""

SNAKE = """
client.login()
session = client._determined._session
me = session.get("api/v1/me").json()["user"]["id"]


def found(**query):
    return [one["userId"] for one in session.get("api/v1/experiments", params=query).json()["experiments"]]


def ids(**query):
    return [one["id"] for one in session.get("api/v1/experiments", params=query).json()["experiments"]]


answer({"mine": set(found(user_ids=[me])) == {me}, "others": found(user_ids=[99999]),
        "up": ids(sort_by="SORT_BY_ID", order_by="ORDER_BY_ASC"), "down": ids(sort_by=1, order_by=2)})
"""

OPEN = {"entrypoint": "true", "max_restarts": 0, "searcher": {"name": "single"}}
FILLED = {
    "searcher": {"metric": "loss"},
    "checkpoint_storage": {"type": "shared_fs", "storage_path": "below"},
    "idle_timeout": "1h",
    "resources": {"slots": 1, "slots_per_trial": 1},
}


def test_refusals_reach_the_client_as_the_errors_that_it_knows(client: Reference) -> None:
    name = f"u{uuid.uuid4().hex[:8]}"
    admin = Api(client.master.url, log_in(client.master, "admin"))
    user = {"username": name, "active": False}
    made = admin.post("/api/v1/users", {"user": user, "password": client.master.password})
    assert made.status == 200, made.content
    told = client.run(REFUSED, f"w{name}", name, client.master.password)
    for case in ("wrong password", "unknown user"):
        assert told[case][0] == "UnauthenticatedException", case
    kind, status, text = told["nothing there"]
    assert (kind, status, "not found" in text) == ("NotFoundException", 404, True)
    kind, status, text = told["taken"]
    assert (kind, status, "already exists" in text) == ("APIException", 409, True)
    kind, _, text = told["switched off"]
    assert (kind, text.startswith("Forbidden(user is not active")) == ("ForbiddenException", True)


def test_client_shows_determineds_phrases_in_refusals(client: Reference, tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text(
        json.dumps({**OPEN, "searcher": {"name": "single", "metric": "loss"}, "resources": {"slots_per_trial": 10485}})
    )
    outrageous, none, wide = batch(
        client,
        "!cmd run --config resources.slots=10485 true",
        "!notebook logs 28ad1623-dcf0-47d2-9faa-265aaa05b078",
        f"!experiment create {tmp_path}/wide.yaml",
    )
    assert "request unfulfillable" in outrageous.err
    assert "not found" in none.err
    assert "slots requested exceeds cluster capacity" in wide.err


def test_template_fills_open_experiment_and_task_settings(client: Reference, tmp_path: Path) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    (tmp_path / "open.yaml").write_text(json.dumps(OPEN))
    (tmp_path / "filled.yaml").write_text(json.dumps(FILLED))
    _, created, _ = batch(
        client,
        f"template create {name} {tmp_path}/filled.yaml",
        f"experiment create {tmp_path}/open.yaml --template {name} --paused",
        f"notebook start --preview --template {name}",
    )
    number = int(created.out.split()[-1])
    api = Api(client.master.url, log_in(client.master, "determined"))
    stored = api.get(f"/api/v1/experiments/{number}").json["config"]
    assert stored["checkpoint_storage"]["storage_path"] == "below"
    assert stored["checkpoint_storage"]["host_path"].endswith("checkpoints")
    client.det("experiment", "kill", str(number))


def test_queries_in_snake_case(client: Reference, tmp_path: Path) -> None:
    (tmp_path / "open.yaml").write_text(json.dumps({**OPEN, "searcher": {"name": "single", "metric": "loss"}}))
    client.det("experiment", "create", str(tmp_path / "open.yaml"), "--paused")
    told = client.run(SNAKE)
    assert (told["mine"], told["others"]) == (True, [])
    assert told["up"] == told["down"][::-1]


def test_more_slots_than_there_are_wait_with_the_clients_warning(installed: Path, tmp_path: Path) -> None:
    wide = {**OPEN, "searcher": {"name": "single", "metric": "loss"}, "resources": {"slots_per_trial": 5}}
    (tmp_path / "wide.yaml").write_text(json.dumps(wide))
    with serving(f"launch_error: false\n{LOCAL}") as master:
        client = Reference(installed, master, tmp_path / "config")
        created, _ = batch(client, f"experiment create {tmp_path}/wide.yaml", "experiment kill 1")
        assert "requires more slots than currently available" in created.err
        assert "Created experiment 1" in created.out
