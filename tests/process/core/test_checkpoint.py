"""Checkpoints: alone, sharded over real processes, and when things go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_ranks
from trainmaster.core import CheckpointConflict, CheckpointContext, CheckpointError, DownloadMode
from trainmaster.core.distributed import single
from trainmaster.core.file_tree import inner_links, list_files
from trainmaster.core.shards import Shard, assign, assign_links, check_digests, merge_metadata, merge_sizes, same_names
from trainmaster.core.storage import Storage, open_storage


class Recorder:
    """Stands where reports are written; the real one is tested in real jobs."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.limits: dict[str, int] = {}

    def add(self, kind: Any, **fields: Any) -> None:
        self.records.append({"kind": kind, **fields})


@pytest.fixture
def reports() -> Any:
    return Recorder()


@pytest.fixture
def checkpoint(tmp_path: Path, reports: Any) -> Any:
    return CheckpointContext(single(), Storage(tmp_path / "store", {"type": "shared_fs"}), reports)


@pytest.fixture
def model(tmp_path: Path) -> Any:
    folder = tmp_path / "model"
    (folder / "opt" / "empty").mkdir(parents=True)
    (folder / "w.bin").write_bytes(b"weights")
    (folder / "opt" / "state").write_text("adam")
    return folder


def test_upload_and_download(checkpoint: Any, model: Any, reports: Any, tmp_path: Path) -> None:
    uuid = checkpoint.upload(model, {"steps_completed": 5, "note": "x"})
    stored = tmp_path / "store" / uuid
    assert list_files(stored).keys() == {"w.bin", "opt/", "opt/state", "opt/empty/", "metadata.json"}
    assert json.loads((stored / "metadata.json").read_text()) == {"steps_completed": 5, "note": "x"}
    (record,) = reports.records
    assert record["resources"] == list_files(stored)
    assert record["steps_completed"] == 5
    assert record["uuid"] == uuid
    checkpoint.download(uuid, tmp_path / "back", selector=lambda path: path.startswith("opt/s"))
    assert list_files(tmp_path / "back").keys() == {"opt/", "opt/state"}
    checkpoint.download(uuid, tmp_path / "all", DownloadMode.NoSharedDownload)
    assert (tmp_path / "all" / "w.bin").read_bytes() == b"weights"


def test_selector_chooses_files_to_keep(checkpoint: Any, model: Any, tmp_path: Path) -> None:
    seen = []
    uuid = checkpoint.upload(model, {"steps_completed": 1}, selector=lambda p: seen.append(p) or p == "opt/state")  # type: ignore[func-returns-value]
    assert sorted(seen) == ["opt/", "opt/empty/", "opt/state", "w.bin"]
    assert list_files(tmp_path / "store" / uuid).keys() == {"opt/", "opt/state", "metadata.json"}


def test_store_path_writes_in_place_and_restore_path_reads_there(checkpoint: Any, reports: Any, tmp_path: Path) -> None:
    with checkpoint.store_path({"steps_completed": 2}) as (path, uuid):
        assert path == tmp_path / "store" / uuid
        (path / "a").write_text("1")
        assert reports.records == []
    assert [record["uuid"] for record in reports.records] == [uuid]
    with checkpoint.restore_path(uuid) as again:
        assert again == path
    assert checkpoint.get_metadata(uuid) == {"steps_completed": 2}


def test_a_failed_save_leaves_nothing(checkpoint: Any, reports: Any, tmp_path: Path) -> None:

    def break_off() -> None:
        with checkpoint.store_path({"steps_completed": 2}) as (path, _):
            (path / "half").write_text("1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    with pytest.raises(CheckpointError, match="is not a folder"):
        checkpoint.upload(tmp_path / "nothing", {"steps_completed": 1})
    assert os.listdir(tmp_path / "store") == []
    assert reports.records == []


def test_checkpoint_of_too_many_files_leaves_nothing(checkpoint: Any, model: Any, reports: Any, tmp_path: Path) -> None:
    reports.limits["checkpoint_files"] = 4
    with pytest.raises(ValueError, match="the checkpoint has 5 files; at most 4 are allowed"):
        checkpoint.upload(model, {"steps_completed": 1})
    assert os.listdir(tmp_path / "store") == []
    reports.limits["checkpoint_files"] = 5
    checkpoint.upload(model, {"steps_completed": 1})
    assert len(reports.records) == 1


def test_a_checkpoint_in_the_background_counts_when_it_is_written(
    checkpoint: Any, reports: Any, tmp_path: Path
) -> None:
    written = threading.Event()

    def begin(folder: Path) -> Callable[[], object]:
        (folder / "half").write_text("1")

        def end() -> None:
            assert written.wait(30)
            (folder / "other half").write_text("2")

        return end

    uuid = checkpoint.store_in_background({"steps_completed": 2}, begin)
    assert reports.records == []
    written.set()
    checkpoint.wait()
    (record,) = reports.records
    assert (record["uuid"], record["steps_completed"]) == (uuid, 2)
    assert record["resources"].keys() == {"half", "other half", "metadata.json"}
    checkpoint.wait()  # there is nothing more
    assert len(reports.records) == 1


def test_a_checkpoint_in_the_background_that_fails_is_said_and_leaves_nothing(
    checkpoint: Any, reports: Any, tmp_path: Path
) -> None:
    def begin(folder: Path) -> Callable[[], object]:
        (folder / "half").write_text("1")
        return lambda: 1 // 0

    checkpoint.store_in_background({"steps_completed": 2}, begin)
    # The next one waits for it, and nothing of that is made.
    with pytest.raises(CheckpointError, match=r"a checkpoint in the background failed: integer division"):
        checkpoint.store_in_background({"steps_completed": 3}, begin)
    assert os.listdir(tmp_path / "store") == []
    with pytest.raises(ValueError, match="steps_completed"):
        checkpoint.store_in_background({}, begin)
    with pytest.raises(FileNotFoundError):
        checkpoint.store_in_background({"steps_completed": 4}, lambda folder: (folder / "none" / "x").open("w").close)
    assert os.listdir(tmp_path / "store") == []
    assert reports.records == []


def test_metadata_needs_the_steps(checkpoint: Any, model: Any) -> None:
    with pytest.raises(ValueError, match="steps_completed"):
        checkpoint.upload(model, {"note": "x"})


def test_delete_tells_the_master(checkpoint: Any, model: Any, reports: Any, tmp_path: Path) -> None:
    uuid = checkpoint.upload(model, {"steps_completed": 1})
    checkpoint.delete(uuid)
    assert reports.records[-1] == {"kind": "checkpoint_deleted", "durable": True, "uuid": uuid}
    assert not (tmp_path / "store" / uuid).exists()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.delete(uuid)


@pytest.mark.parametrize("storage_id", ["../x", "", ".", "..", "a/b", "/etc"])
def test_ids_cannot_lead_elsewhere(checkpoint: Any, storage_id: str) -> None:
    with pytest.raises(CheckpointError, match="cannot be the id"):
        checkpoint.delete(storage_id)


def written_by_frameworks(folder: Any) -> Any:
    """What DeepSpeed, Lightning, Hugging Face and others leave in a folder."""
    step = folder / "global_step10"
    (step / "empty").mkdir(parents=True)
    (step / "model.bin").write_bytes(b"weights")
    (folder / "latest").symlink_to("global_step10")
    (folder / "current").symlink_to("latest")
    (folder / "last.ckpt").symlink_to("global_step10/model.bin")
    (folder / "absolute").symlink_to(step)
    (folder / "aa").symlink_to("zz")
    (folder / "zz").mkdir()
    (folder / "zz" / "up").symlink_to("../global_step10/model.bin")
    os.link(step / "model.bin", folder / "hard.bin")
    (folder / ("n" * 255)).write_text("long")
    (folder / "héllo wörld %20.txt").write_text("odd")
    with open(folder / "sparse.bin", "wb") as file:
        file.seek(64 * 2**20)
        file.write(b"end")
    (folder / "loop").symlink_to(".")
    (zzz := folder / "zzz").mkdir()
    (zzz / "self").symlink_to("..")
    (folder / "gone").symlink_to("removed-step")
    return folder


NAMES = {
    "global_step10/": 0,
    "global_step10/empty/": 0,
    "global_step10/model.bin": 7,
    **{
        f"{link}/{name}": size
        for link in ("latest", "current", "absolute")
        for name, size in (("", 0), ("empty/", 0), ("model.bin", 7))
    },
    "last.ckpt": 7,
    "zz/": 0,
    "zz/up": 7,
    "aa/": 0,
    "aa/up": 7,
    "hard.bin": 7,
    "n" * 255: 4,
    "héllo wörld %20.txt": 3,
    "sparse.bin": 64 * 2**20 + 3,
    "zzz/": 0,
}
LINKS = {
    "latest": "global_step10",
    "current": "latest",
    "last.ckpt": "global_step10/model.bin",
    "absolute": "global_step10",
    "aa": "zz",
    "zz/up": "../global_step10/model.bin",
    "loop": ".",
    "zzz/self": "..",
    "gone": "removed-step",
}


def check_whole(folder: Any) -> None:
    """All names with their contents, and links that are links and lead inside."""
    found = list_files(folder)
    assert {name: size for name, size in found.items() if name != "metadata.json"} == NAMES
    assert {path: os.readlink(folder / path) for path in LINKS} == LINKS
    for name in ("latest/model.bin", "current/model.bin", "absolute/model.bin", "last.ckpt", "aa/up", "hard.bin"):
        assert (folder / name).read_bytes() == b"weights"
    sparse = os.stat(folder / "sparse.bin")
    assert sparse.st_blocks * 512 < 2**20, "its hole stays a hole"
    with open(folder / "sparse.bin", "rb") as file:
        file.seek(-4, os.SEEK_END)
        assert file.read() == b"\0end"


def test_files_of_frameworks_are_restored_unchanged(checkpoint: Any, reports: Any, tmp_path: Path) -> None:
    uuid = checkpoint.upload(written_by_frameworks(tmp_path / "model"), {"steps_completed": 1})
    with checkpoint.restore_path(uuid) as path:
        check_whole(path)
    assert {**reports.records[0]["resources"], "metadata.json": 0} == {**NAMES, "metadata.json": 0}
    for _ in range(2):  # also over what is there
        checkpoint.download(uuid, tmp_path / "back")
        check_whole(tmp_path / "back")
    with checkpoint.store_path({"steps_completed": 2}) as (path, second):
        written_by_frameworks(path)
    with checkpoint.restore_path(second) as path:
        check_whole(path)


def test_targets_of_links_to_outside_are_copied(checkpoint: Any, tmp_path: Path) -> None:
    outside = tmp_path / "cache" / "blobs"
    outside.mkdir(parents=True)
    (outside / "weights").write_text("w")
    (outside / "again").symlink_to("weights")
    for upload in (True, False):
        folder = tmp_path / f"model{upload}"
        with contextlib.ExitStack() as stack:
            if not upload:
                folder, uuid = stack.enter_context(checkpoint.store_path({"steps_completed": 1}))
            folder.mkdir(exist_ok=True)
            (folder / "base").symlink_to(outside)
            (folder / "file").symlink_to(outside / "weights")
        if upload:
            uuid = checkpoint.upload(folder, {"steps_completed": 1})
        stored = tmp_path / "store" / uuid
        assert not any(os.path.islink(stored / name) for name in ("base", "file"))
        assert [(stored / name).read_text() for name in ("base/weights", "base/again", "file")] == ["w"] * 3


@pytest.mark.parametrize("upload", [True, False])
@pytest.mark.parametrize(
    ("name", "goal", "words"),
    [
        ("base", "/no/such/place", "the link base leads to /no/such/place, where nothing is"),
        ("up", "../..", "which holds the checkpoint itself"),
        (b"caf\xe9", None, "is not UTF-8"),
    ],
)
def test_unstorable_file_is_rejected_by_name(
    checkpoint: Any, reports: Any, tmp_path: Path, name: bytes | str, goal: str | None, words: str, upload: bool
) -> None:
    def save() -> None:
        if not upload:
            with checkpoint.store_path({"steps_completed": 1}) as (path, _):
                fill(path)
        else:
            (tmp_path / "model").mkdir()
            fill(tmp_path / "model")
            checkpoint.upload(tmp_path / "model", {"steps_completed": 1})

    def fill(folder: Any) -> None:
        if goal is None:
            open(os.path.join(os.fsencode(folder), name), "wb").close()  # type: ignore[arg-type]
        else:
            (folder / name).symlink_to(goal)

    with pytest.raises(CheckpointError, match=words):
        save()
    assert reports.records == []
    assert not os.path.exists(tmp_path / "store") or os.listdir(tmp_path / "store") == []


def test_selector_matches_paths_below_links(checkpoint: Any, tmp_path: Path) -> None:
    folder = written_by_frameworks(tmp_path / "model")
    uuid = checkpoint.upload(folder, {"steps_completed": 1}, selector=lambda path: path.startswith("latest/"))
    stored = tmp_path / "store" / uuid
    assert list_files(stored).keys() == {"latest/", "latest/empty/", "latest/model.bin", "metadata.json"}
    assert inner_links(stored) == {}, "what it led to was not chosen"


def test_links_of_shards() -> None:
    """One that all ranks with something there have stays a link; one that is a folder on another rank is copied."""
    here = Shard({"a/": 0, "a/0": 1, "l/": 0, "l/0": 1, "m/": 0, "m/0": 1}, {}, {}, {"l": "a", "m": "a"})
    there = Shard({"a/": 0, "a/1": 1, "l/": 0, "l/1": 1, "m/": 0, "m/1": 1}, {}, {}, {"l": "a"})
    links = assign_links([here, there, Shard({}, {}, {})])
    assert links == [{"l": "a"}, {}, {}]
    assert assign([here, there], {"l"}) == [{"a/", "a/0", "m/", "m/0"}, {"a/1", "m/1"}]


SHARDS = """
import os, pathlib, sys
from trainmaster import core
from trainmaster.core.checkpoint import CheckpointContext
from trainmaster.core.storage import Storage

here = pathlib.Path(os.environ["HOME"])
with core.DistributedContext.from_torch_distributed() as distributed:
    rank = distributed.rank
    ctx = CheckpointContext(distributed, Storage(here / "store", {}))
    mine = here / ("rank%d" % rank)
    mine.mkdir()
    (mine / ("shard%d" % rank)).write_text("s" * (rank + 1))
    (mine / "common").write_text("same")
    (mine / "latest").symlink_to("common")
    (mine / "step").mkdir()
    (mine / "step" / str(rank)).write_text("x")
    (mine / "newest").symlink_to("step")
    if os.environ.get("SHARED_FILE"):
        (mine / "clash").write_text("I am %d" % rank)
    if os.environ.get("FAIL") == str(rank):
        mine = here / "missing"
    metadata = {"steps_completed": 4, "rank%d" % rank: rank}
    if os.environ.get("METADATA"):
        metadata["note"] = rank
    try:
        uuid = ctx.upload(mine if rank < 3 else None, metadata, shard=True)
        with ctx.store_path({"steps_completed": 5}, shard=True) as (path, second):
            (path / ("in-place-%d" % rank)).write_text("x")
            if os.environ.get("RAISE") == str(rank):
                raise KeyError("in the block")
        ctx.download(uuid, here / "back")
        print(uuid, second)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_shards_make_one_checkpoint(tmp_path: Path) -> None:
    results = run_ranks(SHARDS, 4, tmp_path)
    assert len({output for _, output in results}) == 1
    first, second = results[0][1].split()
    folder = tmp_path / "store" / first
    assert list_files(folder) == {
        "shard0": 1,
        "shard1": 2,
        "shard2": 3,
        "common": 4,
        "latest": 4,
        **{f"{name}/{rank}": 1 for name in ("step", "newest") for rank in range(3)},
        "step/": 0,
        "newest/": 0,
        "metadata.json": (folder / "metadata.json").stat().st_size,
    }
    assert inner_links(folder) == {"latest": "common", "newest": "step"}
    assert json.loads((folder / "metadata.json").read_text()) == {
        "steps_completed": 4,
        "rank0": 0,
        "rank1": 1,
        "rank2": 2,
        "rank3": 3,
    }
    assert {f"in-place-{rank}" for rank in range(4)} < list_files(tmp_path / "store" / second).keys()
    assert (tmp_path / "back" / "common").read_text() == "same"


RENAMES = """
import os, time
from pathlib import Path
from trainmaster import core
from trainmaster.core import checkpoint

here = Path(os.environ["HOME"])
list_files = checkpoint.list_files

def listing(folder):
    found = list_files(folder)
    (here / "listed").touch()
    return found

checkpoint.list_files = listing
with core.DistributedContext.from_torch_distributed() as distributed, core.init(
    distributed=distributed, checkpoint_storage=str(here / "store")
) as ctx:
    with ctx.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, uuid):
        if distributed.rank == 0:
            (path / "model.draft").write_text("x")
            (here / "written").touch()
            deadline = time.monotonic() + 1  # nobody lists the folder now
            while not (here / "listed").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            (path / "model.draft").rename(path / "model")
        else:
            while not (here / "written").exists():
                time.sleep(0.01)
    print(uuid)
"""


def test_finished_rank_waits_while_others_write_and_rename(tmp_path: Path) -> None:
    results = run_ranks(RENAMES, 2, tmp_path)
    assert [status for status, _ in results] == [0, 0], results
    folder = tmp_path / "store" / results[0][1].strip()
    assert list_files(folder).keys() == {"model", "metadata.json"}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"SHARED_FILE": "1"}, ["CheckpointConflict ranks [0, 1, 2] bring different files 'clash'"] * 4),
        ({"METADATA": "1"}, ["different metadata under 'note'"] * 4),
        (
            {"FAIL": "1"},
            ["failed on rank 1", "is not a folder", "failed on rank 1", "failed on rank 1"],
        ),
        ({"RAISE": "2"}, ["failed on rank 2: KeyError"] * 2 + ["KeyError 'in the block'", "failed on rank 2"]),
    ],
)
def test_a_fault_on_one_rank_is_an_error_on_all(tmp_path: Path, fault: Any, words: Any) -> None:
    results = run_ranks(SHARDS, 4, tmp_path, **fault)
    for (status, output), expected in zip(results, words, strict=True):
        assert status == 0
        assert expected in output
    kept = os.listdir(tmp_path / "store") if (tmp_path / "store").exists() else []
    assert len(kept) == (1 if "RAISE" in fault else 0)


def test_a_worker_alone_cannot_save(tmp_path: Path) -> None:
    script = """
import os
from trainmaster import core
with core.DistributedContext.from_torch_distributed() as distributed, core.init(
    distributed=distributed, checkpoint_storage=os.environ["HOME"]
) as ctx:
    if distributed.rank == 1:
        try:
            ctx.checkpoint.upload("/tmp")
        except RuntimeError as error:
            print(error)
"""
    results = run_ranks(script, 2, tmp_path)
    assert "upload(shard=False) may be called by the chief only" in results[1][1]


def shard(sizes: Any, identity: Any = ("h", 1, 1), **metadata: Any) -> Any:
    return Shard(sizes, dict.fromkeys(sizes, identity), metadata)


def test_one_file_seen_twice_is_no_conflict() -> None:
    shards = [shard({"a": 1, "d/": 0}), shard({"a": 1, "d/": 0, "b": 2})]
    assert same_names(shards) == {}
    assert assign(shards) == [{"a", "d/"}, {"b"}]
    assert merge_sizes([shard({"a": 1}), shard({"a": 3})]) == {"a": 3}


def test_two_files_under_one_name_must_be_equal() -> None:
    shards = [shard({"a": 1}), shard({"a": 1}, identity=("h", 1, 2)), shard({})]
    doubtful = same_names(shards)
    assert doubtful == {"a": [0, 1]}
    check_digests(doubtful, [{"a": "x"}, {"a": "x"}, {}])
    with pytest.raises(CheckpointConflict):
        check_digests(doubtful, [{"a": "x"}, {"a": "y"}, {}])


def test_a_file_and_a_folder_of_one_name() -> None:
    with pytest.raises(CheckpointConflict, match="file for one rank and a folder"):
        assign([shard({"a": 1}), shard({"a/": 0})])


def test_metadata_is_merged() -> None:
    assert merge_metadata([shard({}, a=1), shard({}, a=1, b=2)]) == {"a": 1, "b": 2}


def test_storage_by_configuration(tmp_path: Path) -> None:
    shared = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "x"}
    assert open_storage(shared).root == tmp_path / "x"
    assert open_storage({**shared, "storage_path": str(tmp_path / "y")}).root == tmp_path / "y"
    assert open_storage({"type": "directory", "container_path": "/data"}).root.as_posix() == "/data"
    assert open_storage(str(tmp_path)).root == tmp_path
    for bad, words in [
        ({**shared, "storage_path": "../out"}, "leads out"),
        ({**shared, "storage_path": "/elsewhere"}, "not below host_path"),
        ({"type": "shared_fs"}, "host_path is missing"),
        ({"type": "s3", "bucket": "b"}, "type 's3' cannot be used"),
        ("s3://bucket", "only folders"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            open_storage(bad)  # type: ignore[arg-type]
