"""Checkpoints of several ranks in an object store: parts merge, and what one rank cannot store none has stored."""

from __future__ import annotations

import pytest

from tests.process.storage.conftest import Stored
from tests.support.master import ended_as, log_text, only_trial, wait_for

RANKS = """
import os, subprocess, sys
from pathlib import Path
from trainmaster import core

if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(r)}) for r in range(3)]
    sys.exit(max(each.wait() for each in ranks))
rank = int(os.environ["RANK"])
os.environ["DET_CHIEF_IP"] = "127.0.0.1"
with core.DistributedContext(
    rank=rank, size=3, local_rank=rank, local_size=3, cross_rank=0, cross_size=1, chief_ip="127.0.0.1"
) as distributed, core.init(distributed=distributed) as context:
BODY
"""

SHARDED = """
    with context.checkpoint.store_path({"steps_completed": 1}, shard=True, wait=WAIT) as (path, uuid):
        (path / ("part-%d" % rank)).write_text("part of %d" % rank)
        (path / "common").write_text("the same for all")
        (path / ("folder-%d" % rank)).mkdir()
        (path / ("folder-%d" % rank) / "deep").write_text("deep")
    context.checkpoint.wait()
    own = Path("own-%d" % rank)
    own.mkdir()
    (own / ("upload-%d" % rank)).write_text("u")
    (own / "equal").write_text("equal")
    second = context.checkpoint.upload(own, {"steps_completed": 2}, shard=True)
    with context.checkpoint.restore_path(uuid) as found:
        names = sorted(str(each.relative_to(found)) for each in found.rglob("*"))
    context.checkpoint.download(second, "copy")
    if rank == 0:
        print("restored", names)
        print("copied", sorted(os.listdir("copy")))
"""

BACKGROUND = """
    def begin(folder):
        (folder / ("__%d_0.distcp" % rank)).write_text("shard %d" % rank)
        if rank == 0:
            (folder / ".metadata").write_text("plan")
        return lambda: FAILS
    uuid = context.checkpoint.store_in_background({"steps_completed": 1}, begin)
    context.checkpoint.wait()
    with context.checkpoint.restore_path(uuid) as found:
        names = sorted(str(each.relative_to(found)) for each in found.rglob("*"))
    if rank == 0:
        print("restored", names)
"""

CONFLICT = """
    with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, uuid):
        pass
    own = Path("own-%d" % rank)
    own.mkdir()
    (own / "same").write_text("differs %d" % rank)
    context.checkpoint.upload(own, {"steps_completed": 2}, shard=True)
"""


# What ranks say to each other and to the master is the same for all stores; these two check signatures.
pytestmark = pytest.mark.parametrize("server", ["rclone", "azurite"], indirect=True)


@pytest.mark.parametrize("wait", [True, False])
def test_parts_of_all_ranks_are_one_checkpoint(stored: Stored, wait: bool) -> None:
    number = stored.create(RANKS.replace("BODY", SHARDED.replace("WAIT", str(wait))))
    client = stored.process.client()
    ended_as(client, number, "COMPLETED")
    log = log_text(client, only_trial(client, number).id)
    parts = [name for rank in range(3) for name in (f"folder-{rank}", f"folder-{rank}/deep", f"part-{rank}")]
    assert f"restored {sorted(['common', 'metadata.json', *parts])}" in log
    assert f"copied {['equal', 'upload-0', 'upload-1', 'upload-2']}" in log


def test_background_write_is_complete_when_all_parts_are_there(stored: Stored) -> None:
    number = stored.create(RANKS.replace("BODY", BACKGROUND.replace("FAILS", "None")))
    client = stored.process.client()
    ended_as(client, number, "COMPLETED")
    names = [".metadata", *(f"__{rank}_0.distcp" for rank in range(3)), "metadata.json"]
    assert f"restored {sorted(names)}" in log_text(client, only_trial(client, number).id)


def test_background_write_of_which_a_part_fails_leaves_nothing(stored: Stored) -> None:
    before = set(stored.objects())
    number = stored.create(RANKS.replace("BODY", BACKGROUND.replace("FAILS", "1 / (2 - rank)")))
    client = stored.process.client()
    ended_as(client, number, "ERROR")
    log = log_text(client, only_trial(client, number).id)
    assert "a checkpoint in the background failed: float division by zero" in log or "division by zero" in log
    assert client.checkpoints(number) == []
    wait_for(lambda: set(stored.objects()) <= before, "the removal of what was sent")


def test_different_files_of_one_name_are_refused(stored: Stored) -> None:
    number = stored.create(RANKS.replace("BODY", CONFLICT))
    client = stored.process.client()
    ended_as(client, number, "ERROR")
    log = log_text(client, only_trial(client, number).id)
    assert "bring different files 'same': give the shards different names" in log
