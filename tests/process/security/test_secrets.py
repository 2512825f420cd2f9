"""Planted secrets appear in no answer of the API to another user."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.process.api.conftest import log_in
from tests.process.api.test_permissions import things_named
from tests.support.api.http import Api
from tests.support.api.jobs import config, create, jobs_of
from tests.support.api.people import give, person
from tests.support.master import MasterProcess, serving, wait_for
from trainmaster.config.masks import MASK
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.http.permissions import ENDPOINTS, Rule

Json = dict[str, Any]
VIEWER = 4


def planted(kind: str) -> str:
    """A secret that is found again wherever it comes out, by where it was put."""
    return f"planted-{kind}-{uuid.uuid4().hex}"


class Secrets:
    """One secret for each place that a configuration has for one."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def new(self, kind: str) -> str:
        self.made.append(planted(kind))
        return self.made[-1]

    def config(self, what: str) -> Json:
        login = {"username": "ada", "password": self.new(f"{what}-registry"), "auth": self.new(f"{what}-auth")}
        variables = [f"HF_TOKEN={self.new(f'{what}-variable')}", "PLAIN=1"]
        return {"environment": {"registry_auth": login, "environment_variables": variables}}

    def s3(self, what: str) -> Json:
        keys = {"access_key": self.new(f"{what}-access"), "secret_key": self.new(f"{what}-secret")}
        return {"type": "s3", "bucket": "b", **keys}

    def found_in(self, content: bytes) -> list[str]:
        return [secret for secret in self.made if secret.encode() in content]


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture(scope="module")
def guarded(secrets: Secrets) -> Iterator[MasterProcess]:
    """A master whose own file holds secrets, with roles."""
    login = {"username": "ada", "password": secrets.new("master-registry"), "auth": secrets.new("master-auth")}
    site = {
        "security": {"authz": {"type": "rbac"}},
        "resource_manager": {"type": "local", "slots": 1, "poll_interval": 0.2},
        "checkpoint_storage": {"type": "azure", "container": "c", "connection_string": secrets.new("master-azure")},
        "task_container_defaults": {
            "registry_auth": login,
            "environment_variables": [f"SITE_PASSWORD={secrets.new('master-variable')}"],
        },
    }
    with serving(json.dumps(site)) as process:
        yield process


@pytest.fixture(scope="module")
def owner(guarded: MasterProcess) -> Api:
    """An administrator, whose first job holds the only slot: the tests play the jobs that wait."""
    api = Api(guarded.url, log_in(guarded, "admin"))
    blocker = create(api, config())
    wait_for(
        lambda: api.get(f"/api/v1/experiments/{blocker}").json["experiment"]["state"] == "STATE_RUNNING",
        "the job that holds the slot",
    )
    return api


@pytest.fixture(scope="module")
def there(guarded: MasterProcess, owner: Api, secrets: Secrets) -> Json:
    """One of everything, each with secrets in it."""
    word = uuid.uuid4().hex[:8]

    def made(path: str, body: Json, *keys: str, method: str = "POST") -> Any:
        answer = owner.call(method, f"/api/v1{path}", body)
        assert answer.status == 200, (path, answer.content)
        found = answer.json
        for key in keys:
            found = found[key]
        return found

    home = {"name": word, "checkpointStorageConfig": secrets.s3("workspace")}
    workspace = made("/workspaces", home, "workspace", "id")
    project = made(f"/workspaces/{workspace}/projects", {"name": "p"}, "project")
    body = json.loads(config(**secrets.config("experiment"), checkpoint_storage=secrets.s3("experiment")))
    pachyderm = {"pachd": {"host": "h", "port": 1}, "proxy": {"scheme": "http", "host": "h", "port": 1}}
    dataset = {"project": "p", "repo": "r", "commit": "c", "branch": "b", "token": secrets.new("pachyderm")}
    body["integrations"] = {"pachyderm": {**pachyderm, "dataset": dataset}}
    body["data"] = {"password": secrets.new("data"), "url": f"https://ada:{secrets.new('url')}@data.example/"}
    order = {"config": json.dumps(body), "activate": True, "projectId": project["id"]}
    experiment = made("/experiments", order, "experiment", "id")
    (job,) = jobs_of(guarded, owner, experiment)
    assert job.lease().status == 200
    saved = str(uuid.uuid4())
    checkpoint = {"uuid": saved, "taskId": job.task_id, "metadata": {"steps_completed": 1}, "resources": {"a": 1}}
    assert job.api.post("/api/v1/checkpoints", {**checkpoint, "allocationId": job.allocation_id}).status == 200
    assert job.send([job.validation(1, loss=1.0)]).status == 200
    model = made("/models", {"name": f"m-{word}", "workspaceId": workspace}, "model", "name")
    made(f"/models/{model}/versions", {"modelName": model, "checkpointUuid": saved}, "modelVersion")
    template = f"t-{word}"
    made(f"/templates/{template}", {"config": secrets.config("template"), "workspaceId": workspace})
    for kind in ("EXPERIMENT", "NTSC"):
        rules = {"invariant_config": secrets.config(f"policy-{kind}")}
        path = f"/config-policies/workspaces/{workspace}/{kind}"
        made(path, {"configPolicies": json.dumps(rules)}, method="PUT")
    tasks = {}
    for kind in ("command", "notebook", "shell", "tensorboard"):
        wish: Json = {"config": secrets.config(kind), "workspaceId": workspace}
        if kind == "command":
            wish["config"]["entrypoint"] = ["sleep", "600"]
        if kind == "tensorboard":
            continue  # it shows what lies on a shared file system, which this master's storage is not
        tasks[f"{kind}_id"] = made(f"/{kind}s", wish, kind, "id")
    generic = {"entrypoint": ["sleep", "600"], **secrets.config("generic")}
    task = made("/generic-tasks", {"config": json.dumps(generic), "projectId": project["id"]}, "taskId")
    hook = {
        "name": word,
        "url": f"https://hooks.example/services/{secrets.new('webhook')}",
        "workspaceId": workspace,
        "triggers": [{"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "COMPLETED"}}],
    }
    webhook = made("/webhooks", hook, "webhook", "id")
    return {
        **dict.fromkeys(things_named(), "1"),
        **{"workspace_id": workspace, "project_id": project["id"], "key": project["key"]},
        **{"experiment_id": experiment, "trial_id": job.trial_id, "task_id": job.task_id, "generic": task},
        **{"allocation_id": job.allocation_id, "uuid": saved, "checkpoint_uuid": saved},
        **{"model_name": model, "template_name": template, "webhook_id": webhook, **tasks},
        **{"tensorboard_id": "x", "user_id": 1, "username": "admin", "workload_type": "EXPERIMENT", "name": "default"},
        **{"pool_name": "default", "label": "x", "job": job, "version": 1, "alias": "x"},
    }


SIGNED = "GET /api/x1/checkpoints/{uuid}/files"
ENDLESS = ("GET /stream",)  # a WebSocket: tests/process/api/test_updates.py


def shown(api: Api, there: Json) -> Iterator[tuple[str, bytes]]:
    """What each address shows of these things, and each search."""
    for key, rule in ENDPOINTS.items():
        method, path = key.split(" ")
        path = path.replace(":path}", "}")
        if method != "GET" or rule in (Rule.AGENT, Rule.PROXY) or key in ENDLESS or "signals/preemption" in path:
            continue
        several = [there]
        if "{task_id}" in path:
            several += [{**there, "task_id": there[kind]} for kind in ("generic", "command_id", "notebook_id")]
        if "{workload_type}" in path:
            several += [{**there, "workload_type": "NTSC"}]
        for one in several:
            query = "?trial_id=1&timeout_seconds=1" if "allocations" in path else ""
            yield key, api.call("GET", path.format_map(one) + query).content
    for path in ("experiments-search", "runs", "model/search", "preview-hp-search", "job-queues-v2"):
        yield path, api.post(f"/api/v1/{path}", {"limit": 50, "projectId": there["project_id"]}).content
    yield "compare", api.get("/api/v1/trials/time-series", trialIds=there["trial_id"], metricNames="loss").content


@pytest.mark.parametrize("who", ["a viewer", "the owner", "the job"])
def test_no_answer_shows_a_secret(owner: Api, there: Json, secrets: Secrets, who: str) -> None:
    if who == "a viewer":
        someone = person(owner)
        give(owner, VIEWER, someone.id, there["workspace_id"])
        api = someone.api
    else:
        api = owner if who == "the owner" else there["job"].api
    # Whoever may edit a webhook sees its address whole.
    allowed = [s for s in secrets.made if "-webhook-" in s] if who == "the owner" else []
    leaks = {}
    masks = 0
    for key, content in shown(api, there):
        masks += content.count(MASK.encode())
        # A signed address names the key that signed it, and never that key's secret.
        named = [s for s in secrets.made if "-access-" in s] if key == SIGNED else []
        if found := [secret for secret in secrets.found_in(content) if secret not in [*allowed, *named]]:
            leaks[key] = [secret.rpartition("-")[0] for secret in found]
    assert leaks == {}
    assert masks > (2 if who == "the job" else 20), "the secrets that were planted are not even there"


def test_masked_secret_sent_back_is_not_stored(owner: Api, there: Json) -> None:
    """A template, a policy and a workspace's storage that are sent back with their masks keep what they had."""
    path = f"/api/v1/templates/{there['template_name']}"
    before = owner.get(path).json["template"]["config"]
    assert owner.call("PATCH", path, {**before, "max_restarts": 4}).status == 200
    strange = owner.call("PATCH", path, {"environment": {"environment_variables": [f"NEW_TOKEN={MASK}"]}})
    assert (strange.status, "write that" in strange.sentence) == (400, True)
    home = f"/api/v1/workspaces/{there['workspace_id']}"
    storage = owner.get(home).json["workspace"]["checkpointStorageConfig"]
    assert storage["secret_key"] == MASK
    assert owner.call("PATCH", home, {"checkpointStorageConfig": {**storage, "bucket": "c"}}).status == 200


def test_the_secrets_are_still_there_for_whom_they_are_meant(
    guarded: MasterProcess, owner: Api, there: Json, secrets: Secrets
) -> None:
    engine = make_engine(EmbeddedServer(guarded.data).url, pool_size=2)
    with engine.connect() as connection:
        kept = str(connection.scalar(text("SELECT string_agg(config::text, '') FROM templates")))
        kept += str(connection.scalar(text("SELECT string_agg(checkpoint_storage::text, '') FROM workspaces")))
    engine.dispose()
    assert MASK not in kept
    assert len(secrets.found_in(kept.encode())) == 5  # three of the template's, two of the workspace's storage


def test_database_log_holds_no_values_and_is_private(guarded: MasterProcess, owner: Api) -> None:
    """A statement that fails is not written down with what it was to store."""
    word = planted("statement")
    engine: Engine = make_engine(EmbeddedServer(guarded.data).url, pool_size=2)
    with pytest.raises(Exception, match="division by zero"), engine.begin() as connection:
        connection.execute(text("SELECT 1/0, :word"), {"word": word})
    engine.dispose()
    log = guarded.data / "postgresql.log"
    assert word not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
