"""Checkpoints cannot be used to read or remove files of other users or of the master."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job, jobs_of, kept_in
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users, run_as
from tests.support.master import MasterProcess, wait_for
from trainmaster.dispatchers.cluster.jobfolder import trees

Json = dict[str, Any]
CHECKPOINTS = "/api/v1/checkpoints"
ATTACKER, VICTIM = "tmbob", "tmalice"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root: files of two accounts are needed")


@pytest.fixture
def lair() -> Iterator[Path]:
    """A folder of the attacker's own account, outside of the master's."""
    try:
        ensure_users()
    except Unavailable as reason:
        pytest.skip(str(reason))
    folder = Path(tempfile.mkdtemp(prefix="tm-lair-", dir="/var/tmp"))
    account = pwd.getpwnam(ATTACKER)
    os.chown(folder, account.pw_uid, account.pw_gid)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def canary(master: MasterProcess) -> Path:
    """A folder that only the master may enter."""
    folder = master.folder / f"canary-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o700)
    for name in ("secret-a", "secret-b"):
        (folder / name).write_text("s")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def leased(master: MasterProcess, user: Api, experiment: Callable[..., int]) -> Callable[[Path], Job]:
    """A job with its lease, whose experiment keeps its checkpoints in a folder."""

    def lease(root: Path) -> Job:
        (found,) = jobs_of(master, user, experiment(kept_in(root)))
        assert found.lease().status == 200
        return found

    return lease


def record(key: str, storage: Any = None, **more: Any) -> Json:
    found = {"t": time.time(), "kind": "checkpoint", "uuid": key, "steps_completed": 1, "resources": {"a": 1}}
    return found | {"metadata": {"steps_completed": 1}} | ({"storage": storage} if storage is not None else {}) | more


def saved(job: Job, storage: Any = None, key: str | None = None) -> str:
    key = key or str(uuid.uuid4())
    # Twice: the latest one of a trial that runs is needed and cannot be removed.
    answer = job.send([record(key, storage), record(str(uuid.uuid4()), storage)])
    assert answer.status == 200, answer.content
    return key


def seen(user: Api, key: str) -> Json:
    found: Json = user.get(f"{CHECKPOINTS}/{key}").json["checkpoint"]
    return found


def told(user: Api, job: Job, words: str) -> bool:
    lines = user.lines(f"/api/v1/trials/{job.trial_id}/logs")
    return any(words in str(line) for line in lines)


def ask(user: Api, key: str, *globs: str) -> Any:
    return user.post(f"{CHECKPOINTS}/rm", {"checkpointUuids": [key], "checkpointGlobs": list(globs)})


# -- whose word counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "storage",
    [
        {"type": "shared_fs", "host_path": "/"},
        {"type": "shared_fs"},
        {"type": "shared_fs", "host_path": 7},
        {"type": "shared_fs", "host_path": "ROOT/.."},
        {"type": "shared_fs", "host_path": "ROOT", "storage_path": "../x"},
        {"type": "directory", "container_path": "ROOT/deeper"},
        {"type": "directory", "container_path": "relative"},
        {"type": "directory"},
        {"type": "nothing"},
        {"type": []},
        {"host_path": "/"},
        {"type": "s3", "bucket": "b", "host_path": "/"},
    ],
)
def test_a_run_names_a_storage_that_its_experiment_does_not(user: Api, keeping: Job, root: Path, storage: Json) -> None:
    told = {
        key: value.replace("ROOT", str(root)) if isinstance(value, str) else value for key, value in storage.items()
    }
    answer = user.post("/api/v1/runs/start", {"runId": keeping.trial_id, "checkpointStorage": told})
    assert (answer.status, "checkpoint_storage in the experiment's configuration" in answer.sentence) == (400, True)


def test_other_spelling_of_experiments_storage_is_accepted(user: Api, keeping: Job, root: Path) -> None:
    for storage in (
        None,
        {},
        {"type": "shared_fs", "host_path": f"{root}//."},
        {"type": "shared_fs", "host_path": str(root.parent), "storage_path": root.name, "save_trial_best": 7},
        {"type": "directory", "container_path": str(root)},
        {"type": "directory", "container_path": "/determined_shared_fs"},
    ):
        answer = user.post("/api/v1/runs/start", {"runId": keeping.trial_id, "checkpointStorage": storage})
        assert answer.status == 200, (storage, answer.content)


def test_a_checkpoint_bears_the_number_of_anothers_storage(
    user: Api, keeping: Job, job: Job, master: MasterProcess
) -> None:
    other = user.post("/api/v1/runs/start", {"runId": job.trial_id}).json["storageId"]
    body = {
        "uuid": str(uuid.uuid4()), "taskId": keeping.task_id, "resources": {}, "metadata": {"steps_completed": 1},
        "storageId": other,
    }  # fmt: skip
    assert user.post(CHECKPOINTS, body).status == 400


@needs_root
def test_a_record_names_a_folder_of_the_jobs_choice(user: Api, keeping: Job, lair: Path, canary: Path) -> None:
    key = str(uuid.uuid4())
    run_as(ATTACKER, ["ln", "-s", str(canary), str(lair / key)])
    said = {"type": "shared_fs", "host_path": str(lair)}
    odd: Any
    for odd in ({"type": "shared_fs"}, 7, ["x"], {"type": {}}):
        saved(keeping, odd)
    assert saved(keeping, said, key) == key
    assert keeping.send([keeping.validation(2, loss=0.5)]).status == 200, "what follows is taken in"
    assert seen(user, key)["storage"] == {"type": "elsewhere"}
    wait_for(lambda: told(user, keeping, f"{key} is kept in a storage"), "a line in the log")
    assert ask(user, key).status == ask(user, key, "**/*").status == 400
    assert user.call("GET", f"/checkpoints/{key}").status == 503
    keeping.leave()
    assert user.call("DELETE", f"/api/v1/experiments/{keeping.experiment_id}").status == 200
    wait_for(lambda: user.get(f"/api/v1/experiments/{keeping.experiment_id}").status == 404, "the experiment to go")
    assert names(canary) == ["secret-a", "secret-b"]


@needs_root
def test_an_old_row_with_another_storage_does_no_harm(
    user: Api, engine: Engine, keeping: Job, lair: Path, canary: Path
) -> None:
    key = saved(keeping)
    run_as(ATTACKER, ["ln", "-s", str(canary), str(lair / key)])
    with engine.begin() as connection:
        change = text("UPDATE checkpoints SET storage = jsonb_build_object('type', 'shared_fs', 'host_path', :root)")
        connection.execute(text(f"{change.text} WHERE uuid = :key"), {"root": str(lair), "key": key})
        row = "INSERT INTO checkpoint_removals (checkpoint, globs) VALUES (:key, '[\"**/*\"]') RETURNING id"
        number = connection.execute(text(row), {"key": key}).scalar_one()
    assert ask(user, key).status == 400
    wait_for(lambda: not waits(engine, number), "the request to be given up")
    assert told(user, keeping, "does not say")
    assert names(canary) == ["secret-a", "secret-b"]


def waits(engine: Engine, number: int) -> bool:
    with engine.connect() as connection:
        return bool(
            connection.execute(text("SELECT 1 FROM checkpoint_removals WHERE id = :id"), {"id": number}).first()
        )


# -- links, and folders of others -----------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("globs", [(), ("secret-a",), ("**/*",)])
def test_a_link_in_the_place_of_a_checkpoint_folder(
    user: Api, leased: Callable[[Path], Job], lair: Path, canary: Path, globs: tuple[str, ...]
) -> None:
    job = leased(lair)
    key = saved(job)
    run_as(ATTACKER, ["ln", "-s", str(canary), str(lair / key)])
    assert ask(user, key, *globs).status == 200
    wait_for(lambda: told(user, job, f"{lair}/{key} is a link"), "the reason in the trial's log")
    assert names(canary) == ["secret-a", "secret-b"]
    assert seen(user, key)["resources"] == {"a": "1"}, "nothing is told of what is there"
    assert user.call("GET", f"/checkpoints/{key}").status == 503


@needs_root
def test_a_link_in_the_place_of_a_folder_above(
    user: Api, leased: Callable[[Path], Job], lair: Path, canary: Path
) -> None:
    job = leased(lair / "storage")
    key = saved(job)
    (canary / key).mkdir()
    (canary / key / "weights").write_text("w")
    run_as(ATTACKER, ["ln", "-s", str(canary), str(lair / "storage")])
    assert ask(user, key, "**/*").status == 200
    wait_for(lambda: told(user, job, "has a part in its path that is not a folder"), "the reason in the trial's log")
    assert names(canary / key) == ["weights"]
    assert user.call("GET", f"/checkpoints/{key}").status == 503


@needs_root
@pytest.mark.parametrize("owner", [VICTIM, ATTACKER])
def test_a_folder_of_another_account(user: Api, leased: Callable[[Path], Job], lair: Path, owner: str) -> None:
    job = leased(lair)
    key = saved(job)
    (lair / key).mkdir()
    (lair / key / "thesis").write_text("t")
    os.chown(lair / key, pwd.getpwnam(owner).pw_uid, -1)
    assert ask(user, key, "**/*").status == 200
    wait_for(lambda: told(user, job, "belongs to uid"), "the reason in the trial's log")
    assert names(lair / key) == ["thesis"]
    assert user.call("GET", f"/checkpoints/{key}").status == 503


def test_a_storage_in_the_masters_own_data(master: MasterProcess, user: Api, leased: Callable[[Path], Job]) -> None:
    for where in (master.data, master.data / "jobs" / ".." / "jobs", master.data / "checkpoints-of-mine"):
        job = leased(where)
        key = saved(job)
        folder = Path(os.path.normpath(where)) / key
        folder.mkdir(parents=True)
        (folder / "own").write_text("o")
        assert ask(user, key, "**/*").status == 200
        wait_for(lambda job=job: told(user, job, "lies in the master's own data"), "the reason in the trial's log")  # type: ignore[misc]
        assert names(folder) == ["own"]
        assert user.call("GET", f"/checkpoints/{key}").status == 503
        shutil.rmtree(folder)


def test_the_storage_that_is_there_without_a_configuration(master: MasterProcess, user: Api, job: Job) -> None:
    key = saved(job)
    folder = master.data / "checkpoints" / key
    folder.mkdir()
    (folder / "weights").write_text("w")
    assert user.call("GET", f"/checkpoints/{key}").status == 200
    assert ask(user, key, "**/*").status == 200
    wait_for(lambda: not folder.exists(), "the folder to go")


@needs_root
def test_linked_checkpoint_fails_deletion_and_keeps_its_target(
    user: Api, leased: Callable[[Path], Job], lair: Path, canary: Path
) -> None:
    job = leased(lair)
    key = saved(job)
    run_as(ATTACKER, ["ln", "-s", str(canary), str(lair / key)])
    job.leave()
    at = f"/api/v1/experiments/{job.experiment_id}"
    wait_for(lambda: user.get(at).json["experiment"]["state"] == "STATE_COMPLETED", "its end")
    assert user.call("DELETE", at).status == 200
    wait_for(lambda: user.get(at).json["experiment"]["state"] == "STATE_DELETE_FAILED", "the refusal")
    assert names(canary) == ["secret-a", "secret-b"]
    (lair / key).unlink()
    assert user.call("DELETE", at).status == 200
    wait_for(lambda: user.get(at).status == 404, "the experiment to go")


# -- names of other things ------------------------------------------------------------------------------------------


def test_a_checkpoint_bears_the_clusters_id(
    master: MasterProcess, user: Api, engine: Engine, keeping: Job, root: Path
) -> None:
    cluster = user.get("/api/v1/master").json["clusterId"]
    events = root / cluster / "tensorboard" / "experiment" / "2" / "trial" / "1"
    events.mkdir(parents=True)
    (events / "events.out.tfevents.victim").write_text("e")
    spellings = (cluster, cluster.upper(), cluster.replace("-", ""), f"{{{cluster}}}", f"urn:uuid:{cluster}")
    for key in (*spellings, str(uuid.UUID(int=0))):
        body = {"uuid": key, "taskId": keeping.task_id, "resources": {}, "metadata": {"steps_completed": 1}}
        answer = user.post(CHECKPOINTS, body)
        assert (answer.status, "cannot be the id of a checkpoint" in answer.sentence) == (400, True)
        assert keeping.send([record(key)]).status == 400
    key = saved(keeping)
    with engine.begin() as connection:  # as it could be done once
        connection.execute(text("UPDATE checkpoints SET uuid = :new WHERE uuid = :old"), {"new": cluster, "old": key})
    assert user.call("GET", f"/checkpoints/{cluster}").status == 503
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [cluster]}).status == 400
    assert names(events) == ["events.out.tfevents.victim"]


def test_a_checkpoint_bears_the_id_of_another_trials(user: Api, keeping: Job, job: Job) -> None:
    key = saved(keeping)
    body = {"uuid": key, "taskId": job.task_id, "resources": {}, "metadata": {"steps_completed": 1}}
    assert user.post(CHECKPOINTS, body).status == 409
    assert job.send([record(key.upper())]).status == 200
    wait_for(lambda: told(user, job, f"{key} is another trial's"), "a line in the log")
    assert seen(user, key)["training"]["trialId"] == keeping.trial_id


def test_a_checkpoint_bears_the_id_of_another_masters_cluster(user: Api, keeping: Job, root: Path) -> None:
    cluster = str(uuid.uuid4())
    (root / cluster / "tensorboard" / "experiment" / "1").mkdir(parents=True)
    saved(keeping, key=cluster)
    assert user.call("GET", f"/checkpoints/{cluster}").status == 503
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [cluster]}).status == 200
    wait_for(lambda: told(user, keeping, "holds TensorBoard files"), "the reason in the trial's log")
    assert (root / cluster / "tensorboard" / "experiment" / "1").is_dir()


@needs_root
def test_tensorboard_files_behind_a_link(user: Api, leased: Callable[[Path], Job], lair: Path, canary: Path) -> None:
    cluster = user.get("/api/v1/master").json["clusterId"]
    job = leased(lair)
    at = f"/api/v1/experiments/{job.experiment_id}"
    (canary / str(job.experiment_id) / "deep").mkdir(parents=True)
    run_as(ATTACKER, ["mkdir", "-p", str(lair / cluster / "tensorboard")])
    run_as(ATTACKER, ["ln", "-s", str(canary), str(lair / cluster / "tensorboard" / "experiment")])
    job.leave()
    wait_for(lambda: user.get(at).json["experiment"]["state"] == "STATE_COMPLETED", "its end")
    answer = user.call("DELETE", f"{at}/tensorboard-files")
    assert (answer.status, "not a folder" in answer.sentence) == (409, True)
    assert (canary / str(job.experiment_id) / "deep").is_dir()
    (lair / cluster / "tensorboard" / "experiment").unlink()
    own = lair / cluster / "tensorboard" / "experiment" / str(job.experiment_id)
    (own / "trial" / "1").mkdir(parents=True)
    (own / "trial" / "1" / "events").write_text("e")
    assert user.call("DELETE", f"{at}/tensorboard-files").status == 200
    assert not own.exists()


# -- the one module -------------------------------------------------------------------------------------------------


@pytest.fixture
def rules() -> trees.Rules:
    return trees.Rules(owner=os.geteuid())


def test_a_folder_and_a_link_are_exchanged_while_it_is_removed(tmp_path: Path, rules: trees.Rules) -> None:
    canary, storage = tmp_path / "canary", tmp_path / "storage"
    (canary / "inner").mkdir(parents=True)
    kept = [canary / f"file-{number}" for number in range(20)] + [canary / "inner" / "deep"]
    for path in kept:
        path.write_text("c")
    storage.mkdir()
    done, swaps = threading.Event(), 0

    def exchange() -> None:
        nonlocal swaps
        while not done.is_set():
            for place in (storage / "key", storage / "key" / "inner"):
                try:
                    place.rename(tmp_path / "aside")
                    os.symlink(canary, place)
                    place.unlink()
                    (tmp_path / "aside").rename(place)
                    swaps += 1
                except OSError:  # it was removed meanwhile
                    shutil.rmtree(tmp_path / "aside", ignore_errors=True)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            try:
                (storage / "key" / "inner").mkdir(parents=True, exist_ok=True)
                for number in range(20):
                    (storage / "key" / "inner" / f"own-{number}").touch()
                trees.remove(str(storage / "key"), ["**/*"], rules)
            except (OSError, trees.Untouched):
                continue
            finally:
                for path in kept:  # made through the link by the lines above, not by what is tested
                    assert path.exists(), path
    finally:
        done.set()
        thread.join()
    assert swaps > 100


def test_removal_keeps_files_that_links_lead_to(tmp_path: Path, rules: trees.Rules) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "key"
    secret.write_text("s")
    folder.mkdir()
    os.link(secret, folder / "linked")
    (folder / "away").symlink_to(secret)
    assert trees.sizes(str(folder), rules).keys() == {"linked", "away"}
    assert trees.remove(str(folder), ["**/*"], rules) == {}
    assert (secret.read_text(), folder.exists()) == ("s", False)


@needs_root
def test_links_are_followed_where_only_root_can_have_made_them(tmp_path: Path, rules: trees.Rules) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "gpfs" / "key").mkdir(parents=True)
    (tmp_path / "home").symlink_to("gpfs")
    (tmp_path / "far").symlink_to(f"{tmp_path}/home")
    os.close(trees.open_folder(f"{tmp_path}/far/key", rules))
    os.symlink("gpfs", tmp_path / "theirs")
    os.chown(tmp_path / "theirs", 12345, 12345, follow_symlinks=False)
    (tmp_path / "round").symlink_to("round")
    for name in ("theirs", "round"):
        with pytest.raises(trees.Untouched, match="not a folder"):
            trees.open_folder(f"{tmp_path}/{name}/key", rules)
    tmp_path.chmod(0o1777)
    with pytest.raises(trees.Untouched, match="not a folder"):
        trees.open_folder(f"{tmp_path}/home/key", rules)
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(trees.Untouched, match="not a folder"):
        trees.open_folder(f"{tmp_path}/home/key", rules)


def test_folder_too_old_or_out_of_bounds_is_not_removed(
    tmp_path: Path, rules: trees.Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "key"
    folder.joinpath(*"abcdef").mkdir(parents=True)
    with pytest.raises(trees.Untouched, match="older than the trial"):
        trees.open_folder(str(folder), rules._replace(since=time.time() + 3600))
    os.close(trees.open_folder(str(folder), rules._replace(since=time.time() + 60)))
    for path in ("relative", "", "/", "//", f"{folder}\0"):
        with pytest.raises((trees.Untouched, FileNotFoundError)):
            trees.open_folder(path, rules)
    with pytest.raises(trees.Unfinished):
        trees.remove(str(folder), ["**/*"], rules._replace(until=time.monotonic() - 1))
    monkeypatch.setattr(trees, "MAX_ENTRIES", 5)
    with pytest.raises(trees.Unfinished, match="more than 5"):
        trees.sizes(str(folder), rules)
    monkeypatch.setattr(trees, "MAX_DEPTH", 3)
    with pytest.raises(trees.Untouched, match="more than 3 nested"):
        trees.remove(str(folder), ["**/*"], rules)
    assert folder.joinpath(*"abcdef").is_dir()


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("**/*", "a", True), ("**/*", "a/b/c", True), ("**", "a/b", True), ("*", "a/b", False), ("*", ".a", True),
        ("a/**/z", "a/z", True), ("a/**/z", "a/b/c/z", True), ("a/**/z", "b/z", False), ("*.bin", "x.bin", True),
        ("**/optimizer.*", "sub/optimizer.bin", True), ("[ab]?", "bc", True), ("A", "a", False), ("a/*", "a", False),
        ("**/" * 60 + "x", "a/" * 60 + "y", False),
    ],
)  # fmt: skip
def test_patterns(pattern: str, path: str, fits: bool) -> None:
    assert trees.matches(path.split("/"), [part for part in pattern.split("/") if part]) is fits
