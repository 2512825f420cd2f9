"""`data: [{source: ..., to: node}]` from the configuration to the training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, serving, wait_ended
from trainmaster.client.errors import APIError

READING = """
import os
folder = os.environ["TRAINMASTER_DATA"]
print("found", sorted(os.listdir(folder)), open(os.path.join(folder, "words", "a.txt")).read())
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder on the node's own disk."""
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def site(node: Path) -> Iterator[MasterProcess]:
    with serving(f"resource_manager: {{type: local, slots: 2, node_data: {node}, node_data_limit: 1 MB}}") as process:
        yield process


@pytest.fixture
def words(tmp_path: Path) -> Path:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("alpha")
    return tmp_path / "words"


def config(*data: dict[str, Any], **more: Any) -> str:
    searcher = {"name": "single", "metric": "loss"}
    return json.dumps(
        {"name": "data", "entrypoint": "python3 train.py", "searcher": searcher, "data": list(data), **more}
    )


def copies(node: Path) -> list[str]:
    return [path.name for path in (node / f"trainmaster-{os.geteuid()}").iterdir() if path.name != "locks"]


def test_second_experiment_finds_the_copy_of_the_first(site: MasterProcess, node: Path, words: Path) -> None:
    client = site.client()
    logs = []
    for _ in range(2):
        item = {"source": str(words), "to": "node"}
        number = client.create_experiment(config(item), files(train__py=READING)).id
        ended_as(client, number, "COMPLETED")
        logs.append(log_text(client, only_trial(client, number).id))
    assert "data words: copied 5 B in 1 files from" in logs[0]
    assert "is on this node already (5 B)" in logs[1]
    assert all("found ['words'] alpha" in log for log in logs)
    (words / "a.txt").write_text("beta")
    number = client.create_experiment(
        config({"source": str(words), "to": "node", "keep": False}), files(train__py=READING)
    ).id
    ended_as(client, number, "COMPLETED")
    assert "found ['words'] beta" in log_text(client, only_trial(client, number).id)
    assert copies(node) == []


def test_what_does_not_fit_fails_with_a_sentence(site: MasterProcess, words: Path) -> None:
    (words / "large").write_bytes(bytes(2**21))
    client = site.client()
    number = client.create_experiment(
        config({"source": str(words), "to": "node"}, max_restarts=0), files(train__py=READING)
    ).id
    reason = wait_ended(client, number).reason
    assert "data words:" in reason
    assert "needs 2.1 MB on this node" in reason
    assert (only_trial(client, number).attempts, only_trial(client, number).restarts) == (1, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{"source": "relative", "to": "node"}], "must be an absolute path, or storage:PATH"),
        ([{"source": "/x", "to": "moon"}], "to"),
        ([{"source": "/x"}], "is required"),
        ([{"source": "/", "to": "node"}], "cannot be the name of a copy"),
        ([{"source": "/a/x", "to": "node"}, {"source": "/b/x", "to": "node"}], "two copies would be called 'x'"),
        ([{"source": "storage:../x", "to": "node"}], "must name something below the storage"),
        ([{"source": "storage:x", "to": "node"}], "its checkpoint_storage is none"),
    ],
)
def test_what_cannot_be_is_refused_at_creation(site: MasterProcess, data: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(APIError, match=words):
        site.client().create_experiment(config(*data), files(train__py=READING))


def test_cluster_without_a_folder_refuses(words: Path) -> None:
    with serving("resource_manager: {type: local}") as process, pytest.raises(APIError, match="set node_data for it"):
        process.client().create_experiment(config({"source": str(words), "to": "node"}), files(train__py=READING))


def test_mapping_is_only_read_by_the_training(site: MasterProcess) -> None:
    client = site.client()
    text = config().replace('"data": []', '"data": {"url": "/nowhere"}')
    number = client.create_experiment(text, files(train__py="print('no copy')")).id
    ended_as(client, number, "COMPLETED")
    assert client.experiment(number).config["data"] == {"url": "/nowhere"}
