"""Every endpoint of the master's own OpenAPI document, called with what fits it and with what does not.

TRAINMASTER_FUZZ_SECONDS (up to 300) lets it go on for longer, with other cases.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from sqlalchemy import Engine

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.api.jobs import config, create
from tests.support.api.rows import changes, written
from tests.support.master import MasterProcess, make_folder, remove_folder, wait_for
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

Operation = APIOperation[Any, Any, Any, Any]
AnyCase = Case[Any]

SECONDS = min(float(os.environ.get("TRAINMASTER_FUZZ_SECONDS", "0")), 300.0)
EXAMPLES = 2  # of each kind, for each endpoint, in each round
PATIENCE = 60.0  # seconds for an answer
LONGEST_ADDRESS = 65_535  # bytes; httptools refuses longer ones before the master sees them, in plain text

# These end the account or the session that everything else is called with; an ordinary user calls them.
AGAINST_ONESELF = frozenset(
    {
        "POST /api/v1/auth/logout",
        "DELETE /session",
        "POST /api/v1/users/{user_id}/password",
        "POST /api/x1/users/{user_id}/password",
        "PATCH /api/v1/users/{user_id}",
        "PATCH /api/v1/users",
        "PATCH /api/v1/tokens/{token_id}",
    }
)


@pytest.fixture(scope="module")
def target() -> Iterator[MasterProcess]:
    """A master of its own: what is called here would pull the rug from under other tests."""
    folder = make_folder()
    process = MasterProcess(folder, "longest_poll: 1\nresource_manager: {type: local, slots: 1, poll_interval: 0.5}\n")
    process.start()
    yield process
    process.clean_up()  # a shell that was asked for by chance would go on for ever
    errors, said = process.errors(), process.log.read_text()
    remove_folder(folder)
    assert not errors, said[said.index(errors[0]) :][:5000]


@pytest.fixture(scope="module")
def database(target: MasterProcess) -> Iterator[Engine]:
    engine = make_engine(EmbeddedServer(target.data).url, pool_size=2)
    yield engine
    engine.dispose()


def things(target: MasterProcess, round_: int) -> dict[str, Any]:
    """Makes one of each, and tells their names and numbers by the names of the paths' parameters."""
    api = Api(target.url, log_in(target, "determined"))
    number = create(api, config(name="fuzzed"))
    (trial,) = api.get(f"/api/v1/experiments/{number}/trials").json["trials"]
    task = trial["taskId"]
    found = api.get(f"/api/v1/tasks/{task}").json["task"]["allocations"]
    api.post(f"/api/v1/experiments/{number}/kill")
    wait_for(
        lambda: api.get(f"/api/v1/experiments/{number}").json["experiment"]["endTime"], "the end of the experiment"
    )
    model, workspace = f"vision-{round_}", api.post("/api/v1/workspaces", {"name": f"fuzzing-{round_}"})
    assert workspace.status == 200, workspace.content
    assert api.post("/api/v1/models", {"name": model}).status == 200
    return {
        "experiment_id": number,
        "trial_id": trial["id"],
        "run_id": trial["id"],
        "task_id": task,
        "allocation_id": found[0]["allocationId"],
        "job_id": api.get(f"/api/v1/experiments/{number}").json["experiment"]["jobId"],
        "model_name": model,
        "workspace_id": workspace.json["workspace"]["id"],
        "project_id": 1,
        "user_id": 2,
        "username": "determined",
    }


class Fuzz:
    """Calls one master, and remembers what went wrong."""

    def __init__(self, master: MasterProcess, database: Engine) -> None:
        self._master, self._database = master, database
        self._real: dict[str, Any] = {}
        self._session = requests.Session()
        self._tokens = {who: log_in(master, who) for who in ("admin", "determined")}
        self._before: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.calls = 0

    def round(self, operations: Sequence[Operation], number: int) -> None:
        self._real = things(self._master, number)
        self._before = written(self._database)
        for operation in operations:
            self._operation(operation, number)

    def _operation(self, operation: Operation, number: int) -> None:
        who = "determined" if operation.label in AGAINST_ONESELF else "admin"
        modes = list(GenerationMode) if _can_be_wrong(operation) else [GenerationMode.POSITIVE]
        for mode in modes:
            self._cases(operation, operation.as_strategy(generation_mode=mode), number, who)

    def _cases(self, operation: Operation, cases: st.SearchStrategy[AnyCase], number: int, who: str) -> None:
        @seed(number)
        @settings(
            max_examples=EXAMPLES,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases, st.booleans())
        def call(case: AnyCase, known: bool) -> None:
            if known:
                for name in set(case.path_parameters or {}) & set(self._real):
                    case.path_parameters[name] = self._real[name]
            self._call(operation.label, case, who)

        call()

    def _call(self, label: str, case: AnyCase, who: str) -> None:
        if case.query and "follow" in case.query:
            case.query["follow"] = "false"  # a followed log ends with its task
        self.calls += 1
        try:
            answer = case.call(
                base_url=self._master.url,
                session=self._session,
                headers={"Authorization": f"Bearer {self._tokens[who]}"},
                timeout=PATIENCE,
            )
        except requests.exceptions.RequestException as error:
            self._note(label, f"no answer: {error}", case)
            return
        if answer.status_code == 401:
            self._tokens[who] = log_in(self._master, who)
        if answer.status_code >= 500 and answer.status_code != 501:
            self._note(label, f"{answer.status_code}: {answer.text}", case)
        seen = len(answer.request.url or "") <= LONGEST_ADDRESS
        if seen and answer.status_code >= 400 and (fault := _fault(answer.text)):
            self._note(label, f"{answer.status_code}, and {fault}: {answer.text}", case)
        after = written(self._database)
        if answer.status_code >= 400 and (changed := changes(self._before, after)):
            self._note(label, f"{answer.status_code}, and wrote {changed}: {answer.text}", case)
        self._before = after

    def _note(self, label: str, what: str, case: AnyCase) -> None:
        self.wrong.setdefault(label, f"{label}: {what[:600]}\n  {case.as_curl_command()[:1500]}")


def _can_be_wrong(operation: Operation) -> bool:
    """Whether there is something that does not fit: any text fits into an address or a header, and the generator would
    only find out after hundreds of attempts."""
    raw = operation.definition.raw
    parts = raw.get("parameters", [])
    texts = [part["schema"] for part in parts if part["in"] in ("path", "header")]
    free = [text for text in texts if text.get("type") == "string" and not {"pattern", "enum"} & text.keys()]
    return len(free) < len(parts) or "requestBody" in raw


def _fault(content: str) -> str:
    """What an error's envelope lacks, or nothing."""
    try:
        error = json.loads(content)["error"]
        whole = isinstance(error["code"], int) and error["reason"] and error["error"].strip()
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        return f"no envelope ({broken!r})"
    return "" if whole else "an envelope without a sentence"


@pytest.mark.slow
def test_nothing_that_is_sent_breaks_the_master(target: MasterProcess, database: Engine) -> None:
    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    operations.sort(key=lambda operation: operation.method == "delete")  # so that others find what there is
    assert len(operations) > 200
    fuzz = Fuzz(target, database)
    until = time.monotonic() + SECONDS
    number = 0
    while True:
        fuzz.round(operations, number)
        number += 1
        if time.monotonic() >= until:
            break
    assert fuzz.calls >= len(operations)
    assert not fuzz.wrong, f"{len(fuzz.wrong)} endpoints:\n" + "\n".join(fuzz.wrong.values())
