"""Who keeps how many bytes of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.master import MasterProcess, ended_as, files, serving

SAVE = """
from trainmaster import core

with core.init() as context:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        (path / "weights").write_bytes(bytes(SIZE))
"""


@pytest.fixture(scope="module")
def master() -> Iterator[MasterProcess]:
    with serving("resource_manager: {type: local}") as process:
        yield process


def test_largest_come_first_by_experiment_owner_and_workspace(master: MasterProcess) -> None:
    sizes = {"small": 1000, "large": 500_000}
    for name, size in sizes.items():
        config = {"name": name, "entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "m"}}
        client = master.client()
        script = files(train__py=SAVE.replace("SIZE", str(size)))
        ended_as(client, client.create_experiment(json.dumps(config), script).id, "COMPLETED")
    found = json.loads(master.det("checkpoint", "usage", "--json").stdout)
    assert [share["name"] for share in found["shares"]] == ["large", "small"]
    for share in found["shares"]:
        assert 0 < share["size"] - sizes[share["name"]] < 200  # metadata.json
        assert (share["checkpoints"], share["owner"], share["workspace"]) == (1, "determined", "Uncategorized")
    whole = sum(share["size"] for share in found["shares"])
    for by, name in (("owner", "determined"), ("workspace", "Uncategorized")):
        (share,) = json.loads(master.det("checkpoint", "usage", "--by", by, "--json").stdout)["shares"]
        assert (share["name"], share["size"], share["checkpoints"]) == (name, whole, 2)
    assert found["place"] == f"{master.data}/checkpoints"
    assert 0 < found["free"] < found["total"]
    table = master.det("checkpoint", "usage", "--limit", "1").stdout
    assert "large" in table
    assert "small" not in table
    assert "are free." in table


def test_policy_is_shown_with_the_bytes_that_it_frees(master: MasterProcess) -> None:
    client = master.client()
    config = {"name": "policy", "entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "m"}}
    number = client.create_experiment(json.dumps(config), files(train__py=SAVE.replace("SIZE", "300_000"))).id
    ended_as(client, number, "COMPLETED")
    (row,) = client.checkpoints(number)
    none = ["--save-experiment-best", "0", "--save-trial-best", "0", "--save-trial-latest", "0"]
    done = master.det("experiment", "set", "gc-policy", *none, str(number), check=False)
    assert row.uuid in done.stdout
    assert "1 checkpoints, 300" in done.stdout
    assert "this needs confirmation at a terminal" in done.stderr
    assert [left.state for left in client.checkpoints(number)] == ["COMPLETED"]
