"""Notebooks and TensorBoards behind the master."""

from __future__ import annotations

import asyncio
import http.client
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.support import trainings
from tests.support.api import programs
from tests.support.api.http import Api, Json
from tests.support.api.people import person
from tests.support.api.tasks import ended, launch, lines, until_ready
from tests.support.master import MasterProcess, files, wait_ended, wait_for
from tests.support.reference.reference import NoReference

pytestmark = pytest.mark.programs

WRITING = """
from trainmaster import core
with core.init() as context:
    (context.train.get_tensorboard_path() / "events.out.tfevents.1.here").write_bytes(b"")
    context.train.report_validation_metrics(1, {"error": 1.0, "epochs": 1})
"""


@pytest.fixture(scope="module", params=["stand-ins", pytest.param("real", marks=pytest.mark.ring)])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH for jobs."""
    if request.param == "real":
        try:
            folder = programs.real()
        except NoReference as reason:
            pytest.skip(str(reason))
    else:
        folder = programs.stand_ins(tmp_path_factory.mktemp("programs"))
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"


def asked(path: str, *variables: str, **keys: object) -> Json:
    return {"resources": {"slots": 0}, "environment": {"environment_variables": [f"PATH={path}", *variables]}, **keys}


@pytest.fixture(scope="module")
def notebook(user_with_slots: Api, path: str) -> Iterator[Json]:
    made = launch(user_with_slots, "notebook", config=asked(path))
    until_ready(user_with_slots, made["id"])
    yield made
    user_with_slots.post(f"/api/v1/notebooks/{made['id']}/kill")


def test_notebook_serves_only_requests_through_master(user_with_slots: Api, notebook: Json) -> None:
    address: str = notebook["serviceAddress"]
    assert user_with_slots.get(f"{address}api/kernels").json == []
    port = int(next(word for word in _command_line(notebook) if word.startswith("--ServerApp.port=")).partition("=")[2])
    neighbour = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    neighbour.request("GET", f"{address}api/kernels")
    assert neighbour.getresponse().status == 403
    neighbour.close()
    assert user_with_slots.token not in " ".join(_command_line(notebook))


def _command_line(notebook: Json) -> list[str]:
    """Of the notebook's process, as every user of the node may see it."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"--ServerApp.base_url={notebook['serviceAddress']}" in words:
            return words
    raise AssertionError("there is no such process")


def test_a_kernel_is_spoken_with(user_with_slots: Api, notebook: Json, request: pytest.FixtureRequest) -> None:
    is_real = "real" in request.node.name
    made = user_with_slots.post(f"{notebook['serviceAddress']}api/kernels", {}).json["id"] if is_real else "k"
    uri = user_with_slots.url.replace("http", "ws", 1) + f"{notebook['serviceAddress']}api/kernels/{made}/channels"

    async def speak() -> str:
        async with connect(
            uri, additional_headers={"Authorization": f"Bearer {user_with_slots.token}"}, open_timeout=60
        ) as kernel:
            await kernel.send(json.dumps(_execute("print(6 * 7)")) if is_real else "print(6 * 7)")
            async for message in kernel:
                if not is_real:
                    return str(message)
                if (found := json.loads(message))["msg_type"] == "stream":
                    return str(found["content"]["text"])
        raise AssertionError("the kernel went without a word")

    assert asyncio.run(speak()) == ("42\n" if is_real else "PRINT(6 * 7)")
    if is_real:
        assert user_with_slots.call("DELETE", f"{notebook['serviceAddress']}api/kernels/{made}").status == 204


def _execute(code: str) -> Json:
    header = {"msg_id": uuid.uuid4().hex, "username": "x", "session": uuid.uuid4().hex, "version": "5.3"}
    header |= {"msg_type": "execute_request"}
    content = {"code": code, "silent": False}
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }


def test_others_do_not_enter_a_notebook(user_with_slots: Api, admin_with_slots: Api, notebook: Json) -> None:
    address = f"{notebook['serviceAddress']}api/kernels"
    assert [
        api.get(address).status for api in (admin_with_slots, person(admin_with_slots).api, Api(user_with_slots.url))
    ] == [200, 403, 401]
    path = f"/api/v1/notebooks/{notebook['id']}/report_idle"
    assert user_with_slots.call("PUT", path, {"idle": True}).status == 403


def test_idle_notebook_ends(user_with_slots: Api, path: str) -> None:
    config = asked(path, "TRAINMASTER_IDLE_LOOK=0.5", idle_timeout="3s")
    made = launch(user_with_slots, "notebook", config=config)
    ended(user_with_slots, made["id"])
    assert "Killed" not in "".join(lines(user_with_slots, made["id"]))
    found = user_with_slots.get(f"/api/v1/notebooks/{made['id']}").json["notebook"]
    assert (found["state"], found["exitStatus"]) == (
        "STATE_TERMINATED",
        "It was ended at once: nobody has used it for 3 s",
    )


def test_tensorboard_shows_runs_that_trials_wrote(
    running: MasterProcess, user_with_slots: Api, admin_with_slots: Api, path: str
) -> None:
    client = running.client()
    number = client.create_experiment(trainings.experiment(), files(train__py=WRITING)).id
    assert wait_ended(client, number).state == "COMPLETED"
    (trial,) = client.trials(number)
    config = {"environment": {"environment_variables": [f"PATH={path}"]}, "tensorboard_args": ["--reload_interval=1"]}
    made = launch(user_with_slots, "tensorboard", experimentIds=[number], trialIds=[trial.id], config=config)
    assert (made["experimentIds"], made["trialIds"]) == ([number], [trial.id])
    until_ready(user_with_slots, made["id"])
    expected = {f"exp_{number}/{trial.id}", f"exp_{number}_trial_{trial.id}"}
    where = "data/runs" if "notebooks" in path else ""
    if where:  # the real one lists only runs with something in them
        assert user_with_slots.get(f"{made['serviceAddress']}{where}").json == []
    else:
        wait_for(lambda: set(user_with_slots.get(made["serviceAddress"]).json) == expected, "the runs")
    assert person(admin_with_slots).api.get(made["serviceAddress"]).status == 200
    user_with_slots.post(f"/api/v1/tensorboards/{made['id']}/kill")
    ended(user_with_slots, made["id"])


def test_tensorboard_of_directory_storage_adds_no_mounts(
    running: MasterProcess, user_with_slots: Api, tmp_path: Path
) -> None:
    """Such a storage is a path in containers; here there are none, and it is the same path."""
    client = running.client()
    keys = {"checkpoint_storage": {"type": "directory", "container_path": str(tmp_path)}}
    number = client.create_experiment(trainings.experiment(keys=keys), files(train__py=WRITING)).id
    assert wait_ended(client, number).state == "COMPLETED"
    (trial,) = client.trials(number)
    (tmp_path / "bin").mkdir()
    path = f"PATH={programs.stand_ins(tmp_path / 'bin')}:/usr/local/bin:/usr/bin:/bin"
    mount = {"host_path": "/tmp", "container_path": "/tmp/there"}
    config = {"environment": {"environment_variables": [path]}, "bind_mounts": [mount]}
    made = launch(user_with_slots, "tensorboard", experimentIds=[number], config=config)
    until_ready(user_with_slots, made["id"])
    wait_for(lambda: user_with_slots.get(made["serviceAddress"]).json == [f"exp_{number}/{trial.id}"], "the run")
    shown = user_with_slots.get(f"/api/v1/tensorboards/{made['id']}").json["config"]["bind_mounts"]
    assert [one["container_path"] for one in shown] == ["/tmp/there"]
    user_with_slots.post(f"/api/v1/tensorboards/{made['id']}/kill")
    ended(user_with_slots, made["id"])


@pytest.mark.parametrize("body", [{}, {"experimentIds": [99999999]}, {"trialIds": [99999999]}])
def test_a_tensorboard_of_nothing(user_with_slots: Api, body: Json) -> None:
    assert user_with_slots.post("/api/v1/tensorboards", body).status in (400, 404)


def test_where_a_program_is_missing(user_with_slots: Api) -> None:
    made = launch(user_with_slots, "notebook", config=asked("/usr/bin:/bin"))
    assert not ended(user_with_slots, made["id"])["allocations"][-1]["isReady"]
    assert any("jupyter cannot be run" in line for line in lines(user_with_slots, made["id"]))
