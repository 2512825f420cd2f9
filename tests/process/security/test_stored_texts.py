"""What a request brings is never stored without a limit: no field of any body, no entry, no number of entries."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from sqlalchemy import Engine, text

import trainmaster
from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job, create, jobs_of
from tests.support.master import MasterProcess, wait_for
from tests.support.security.bodies import BODIES
from trainmaster.master import app
from trainmaster.master.http.field_limits import ELSEWHERE, LENGTHS
from trainmaster.master.http.job_route import JobRoute
from trainmaster.master.http.messages import Storable
from trainmaster.master.http.permissions import ENDPOINTS, Rule
from trainmaster.master.services.errors import Invalid

Json = dict[str, Any]
LONG = "x" * 3_000_000
WIDE = {f"k{number}": "x" * 30 for number in range(100_000)}
MANY = ["x" * 30] * 100_000
OTHERS = {"AgentReport", "ContainerState"}  # an agent's: tests/process/security/test_agents.py

# Fields of the calls of jobs whose excess is cut or dropped instead of refused: the answer is 200, and what is stored
# is short. By endpoint and field.
CUT = {
    "log": "a line is cut with a note",
    "training": "dropped",
    "kind": "the warning about an unknown kind names 60 characters of it",
}


def models() -> Iterator[type[Storable]]:
    left: list[type[Storable]] = [Storable]
    while left:
        for model in left.pop().__subclasses__():
            yield model
            left.append(model)


def bodies(route: APIRoute) -> Iterator[Any]:
    if isinstance(route, JobRoute):
        yield get_type_hints(route.endpoint)["body"]
    elif route.body_field is not None:
        yield route.body_field.field_info.annotation


def inner(kind: Any) -> Iterator[type]:
    """The classes in an annotation."""
    if isinstance(kind, type) and get_origin(kind) is None:
        yield kind
    for part in get_args(kind):
        yield from inner(part)


def test_every_body_of_the_api_has_the_limits() -> None:
    found = {
        kind.__name__
        for part in app.PARTS
        for route in part.router.routes
        if isinstance(route, APIRoute)
        for body in bodies(route)
        for kind in inner(body)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, Storable)
    }
    assert found <= OTHERS


@pytest.mark.parametrize("model", sorted(set(models()), key=lambda one: (one.__module__, one.__name__)))  # type: ignore[attr-defined]
def test_no_field_of_a_body_is_without_a_limit(model: type[Storable]) -> None:
    """A new field has the limit of names, or of values, until somebody gives it another."""
    for name, field in model.model_fields.items():
        kinds = set(inner(Union[field.annotation, None]))  # noqa: UP007
        for kind, value in ((str, LONG), (list, MANY), (dict, WIDE)):
            origins = {get_origin(one) or one for one in (field.annotation, *get_args(field.annotation))}
            if name in ELSEWHERE or not (kind in origins or (kind is str and kinds == {str, type(None)})):
                continue
            if any(issubclass(one, BaseModel) for one in kinds):
                continue  # those have limits of their own
            with pytest.raises((Invalid, ValidationError)) as refused:
                model.model_construct(**{name: value})._within_limits()  # type: ignore[arg-type, operator]
            assert "limits." in str(getattr(refused.value, "message", refused.value)), name


def test_every_exception_names_a_limit_or_where_it_is_checked() -> None:
    fields = {name for model in models() for name in model.model_fields}
    assert set(ELSEWHERE) <= fields
    assert set(LENGTHS) <= fields
    root = Path(trainmaster.__file__).parent
    for name, where in ELSEWHERE.items():
        for path in re.findall(r"[a-z_]+(?:/[a-z_]+)+\.py", where):
            assert (root / path).exists() or (root / "master" / path).exists(), name


# -- the calls of jobs -----------------------------------------------------------------------------------------------

OF_USERS = re.compile(r"/(tickets|search|setting|reset|preview-hp-search|by-ids)$|/(roles|groups|users)\b")
OF_JOBS = [
    key
    for key, rule in ENDPOINTS.items()
    if not key.startswith("GET")
    and (rule is Rule.OWN_JOB or "{allocation_id}" in key or (key in BODIES and rule is Rule.ANYBODY))
    and not OF_USERS.search(key)
]


def spoiled(value: Any) -> Iterator[tuple[str, Any]]:
    """The value with each of its texts, objects and lists made too large, one after the other; with the field."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        name = key if isinstance(key, str) else ""
        one = value[key]
        options = [LONG] if isinstance(one, str) else [WIDE] if isinstance(one, dict) and not one else []
        if isinstance(one, list) and not one:
            options = [MANY]  # type: ignore[assignment]
        for option in options:
            yield name, replaced(value, key, option)
        for field, worse in spoiled(one):
            yield field or name, replaced(value, key, worse)


def replaced(value: Any, key: Any, new: Any) -> Any:
    if isinstance(value, dict):
        return {**value, key: new}
    return [*value[:key], new, *value[key + 1 :]]


FULL: dict[str, Any] = {
    "POST /api/v1/allocations/{allocation_id}/acceleratorData": {
        "acceleratorData": {"containerId": "c", "nodeName": "n", "acceleratorType": "t", "acceleratorUuids": []}
    },
    "POST /api/v1/allocations/{allocation_id}/proxy_address": {"proxyAddress": "127.0.0.1", "user": "u", "port": 1},
    "POST /api/v1/allocations/{allocation_id}/all_gather": {
        "requestUuid": "r", "numPeers": 1, "data": {}, "nodeName": "n"
    },
    "POST /api/v1/allocations/{allocation_id}/notify_container_running": {
        "requestUuid": "r", "numPeers": 1, "data": {}, "nodeName": "n"
    },
    "POST /api/x1/allocations/{allocation_id}/lease": {
        "job_id": "played-1", "run_id": "r", "num_nodes": 1, "node_name": "m", "slot_ids": [], "addresses": []
    },
    "POST /api/x1/allocations/{allocation_id}/reports": {
        "stream": "core", "records": [{"t": 1.0, "uuid": "u", "metadata": {}, "resources": {}, "kind": "checkpoint"}]
    },
    "POST /api/v1/trials/{trial_id}/runner/metadata": {"state": "s"},
    "POST /api/v1/trials/{trial_id}/early_exit": {"reason": "r"},
    "POST /api/v1/task/logs": {
        "logs": [
            {"taskId": "{task_id}", "log": "l", "agentId": "a", "containerId": "c", "source": "s", "stdtype": "o"}
        ]
    },
    "POST /api/v1/checkpoints": {
        "uuid": "{uuid}", "taskId": "{task_id}", "resources": {}, "metadata": {"steps_completed": 1, "more": {}},
    },
}  # fmt: skip


@pytest.mark.parametrize("endpoint", OF_JOBS)
def test_job_calls_reject_huge_texts_and_entry_counts(job: Job, engine: Engine, endpoint: str) -> None:
    method, path = endpoint.split(" ")
    things = {
        "allocation_id": job.allocation_id, "trial_id": job.trial_id, "task_id": job.task_id, "notebook_id": "n",
        "experiment_id": job.experiment_id, "uuid": str(uuid.uuid4()), "resources_id": "0",
    } | dict.fromkeys(
        ("project_id", "workspace_id", "user_id", "me", "group_id", "generic_id", "ended_id", "job_id",
         "template_name"), 1
    )  # fmt: skip
    make = BODIES.get(endpoint)
    body = FULL.get(endpoint) or (make(things) if make else {})
    body = json.loads(re.sub(r'"\{(\w+)\}"', lambda word: json.dumps(str(things[word[1]])), json.dumps(body)))
    target = path.format_map(things)
    before = stored(engine)
    for field, worse in spoiled(body):
        answer = job.api.call(method, target, worse)
        if field in CUT and answer.status == 200:
            continue
        assert refused(answer), (field, answer.status, answer.content[:300])
    assert stored(engine) - before < 1_000_000


def refused(answer: Answer) -> bool:
    """Whether nothing can have been stored: for its size, or for another reason."""
    if answer.status in (401, 403, 404, 405, 409, 501):
        return True
    return answer.status in (400, 413) and (
        "limits." in answer.sentence or "at most" in answer.sentence or _unfit(answer)
    )


def _unfit(answer: Answer) -> bool:
    """An enumeration, an id or an address whose form is checked."""
    words = ("is not", "There is no", "does not fit", "Only", "should", "must", "cannot", "has no", "has none")
    return any(word in answer.sentence for word in words)


TABLES = (
    *("allocations", "allocation_nodes", "gatherings", "report_streams", "trials", "checkpoints", "metrics", "tasks"),
)


def stored(engine: Engine) -> int:
    """Bytes in the tables that jobs write to, compressed as they are."""
    with engine.connect() as connection:
        return sum(
            int(connection.execute(text(f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t")).scalar_one())
            for table in TABLES
        )


def gather(job: Job, request: str, *, peers: int = 2, data: Any = None, kind: str = "all_gather") -> Answer:
    body = {"requestUuid": request, "numPeers": peers, "data": data or {}}
    return job.api.post(f"/api/v1/allocations/{job.allocation_id}/{kind}", body)


def test_barrier_entries_and_container_devices_have_size_limit(job: Job) -> None:
    answer = gather(job, "1", data={"blob": "x" * 200_000})
    assert answer.status == 400
    assert "limits.job_entry" in answer.sentence
    devices = {"acceleratorData": {"containerId": "c", "acceleratorUuids": ["x" * 900] * 100}}
    answer = job.api.post(f"/api/v1/allocations/{job.allocation_id}/acceleratorData", devices)
    assert answer.status == 400
    assert "limits.job_entry" in answer.sentence


def test_all_entries_of_an_attempt_have_a_size_and_a_number(job: Job, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gatherings (allocation_id, kind, request_uuid, number, data, size) "
                "SELECT :id, 'all_gather', 'r' || n, 0, '{}', 16000 FROM generate_series(1, 1100) AS n"
            ),
            {"id": job.allocation_id},
        )
    answer = gather(job, "new", peers=2000)
    assert answer.status == 400
    assert "limits.job_state" in answer.sentence
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE allocations SET accelerators = (SELECT jsonb_agg(jsonb_build_object('containerId', n::text, "
                 "'acceleratorType', repeat('x', 15000))) FROM generate_series(1, 1200) AS n) WHERE id = :id"),
            {"id": job.allocation_id},
        )  # fmt: skip
    answer = job.api.post(
        f"/api/v1/allocations/{job.allocation_id}/acceleratorData", {"acceleratorData": {"containerId": "new"}}
    )
    assert answer.status == 400
    assert "limits.job_state" in answer.sentence


def test_gathered_entries_are_removed_with_their_barrier(job: Job, engine: Engine) -> None:
    def kept() -> int:
        with engine.connect() as connection:
            query = text("SELECT count(*) FROM gatherings WHERE allocation_id = :id")
            return int(connection.execute(query, {"id": job.allocation_id}).scalar_one())

    for number in range(20):
        answer = gather(job, f"r{number}", peers=1, data={"n": number})
        assert answer.json["data"] == [{"n": number}]
        assert gather(job, f"r{number}", peers=1).json["data"] == [{"n": number}]  # a retry
    assert kept() == 1
    for peers in ("a", "b"):
        answers = [gather(job, f"{peers}{rank}", peers=1, data={"rank": rank}, kind="notify_container_running")
                   for rank in range(2)]  # fmt: skip
        assert [answer.json["data"] for answer in answers] == [[{"rank": 0}], [{"rank": 1}]]
    assert kept() == 2


def test_gathered_entries_are_removed_when_attempt_ends(master: MasterProcess, user: Api, engine: Engine) -> None:
    number = create(user)
    (job,) = jobs_of(master, user, number)
    assert job.lease().status == 200
    assert gather(job, "one", peers=1).status == 200
    user.post(f"/api/v1/experiments/{number}/kill")
    job.leave()

    def gone() -> bool:
        with engine.connect() as connection:
            query = text("SELECT count(*) FROM gatherings WHERE allocation_id = :id")
            return bool(connection.execute(query, {"id": job.allocation_id}).scalar_one() == 0)

    wait_for(gone, "the entries of an attempt that is over to go", 90)


def test_allocation_query_leaves_out_accelerators() -> None:
    from sqlalchemy import select

    from trainmaster.master.db.tables import Allocation

    assert "accelerators" not in str(select(Allocation))


def test_the_streams_of_an_attempt_have_a_number(job: Job, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO report_streams (allocation_id, stream, acked) "
                "SELECT :id, 's' || n, 1 FROM generate_series(1, 100000) AS n"
            ),
            {"id": job.allocation_id},
        )
    answer = job.send([{"t": 1.0, "line": "x"}], stream="log-new")
    assert answer.status == 400
    assert "limits.job_entries" in answer.sentence


def test_exit_record_of_unknown_node_is_not_kept(job: Job, engine: Engine) -> None:
    path = f"/api/x1/allocations/{job.allocation_id}/exit"
    record = {"version": 1, "job_id": "played-1", "exit_code": 0, "message": "x" * 4000}
    for rank in (1, 2, 99_999):
        assert job.api.post(path, record | {"node_rank": rank}).status == 200
    with engine.connect() as connection:
        query = text("SELECT exits FROM allocations WHERE id = :id")
        assert connection.execute(query, {"id": job.allocation_id}).scalar_one() == {}


def test_checkpoint_files_and_metadata_are_limited(job: Job) -> None:
    body = {"uuid": str(uuid.uuid4()), "taskId": job.task_id, "metadata": {"steps_completed": 1}}
    many = {f"f{number}": 1 for number in range(500_001)}
    answer = job.api.post("/api/v1/checkpoints", {**body, "resources": many})
    assert answer.status == 400
    assert "limits.checkpoint_files" in answer.sentence
    large = {"t": 1.0, "kind": "checkpoint", "uuid": str(uuid.uuid4()), "steps_completed": 1,
             "resources": dict.fromkeys([*many][:150_000], 1), "metadata": {}}  # fmt: skip
    job.send([large]).json  # noqa: B018 - more values than another report may hold
    record = {"t": 1.0, "kind": "checkpoint", "uuid": str(uuid.uuid4()), "steps_completed": 1, "resources": {},
              "metadata": {"x": "y" * 5_000_000}}  # fmt: skip
    answer = job.send([record])
    assert answer.status == 400
    assert "limits.metadata" in answer.sentence
