"""A store that misbehaves while a job stores a checkpoint there: nothing is lost, and what cannot work is said."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.process.storage.conftest import Stored, store_of
from tests.support.master import ended_as, log_text, only_trial, serving, wait_for
from tests.support.storage.faulty import Fault, Faulty, faulty
from tests.support.storage.servers import Server, rclone
from trainmaster.config.master import parse_master
from trainmaster.master.services.removal import storage_audit
from trainmaster.master.storage_check import examine_storage

SAVE = """
import random
from trainmaster import core

with core.init() as context:
    for step in range(1, STEPS + 1):
        with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            for number in range(12):
                (path / ("small-%d" % number)).write_bytes(random.Random(step).randbytes(1000 + number))
            (path / "large").write_bytes(random.Random(0).randbytes(40 * 2**20))
        context.train.report_validation_metrics(step, {"loss": 1.0 / step})
    context.checkpoint.download(uuid, "copy")
    assert open("copy/large", "rb").read() == random.Random(0).randbytes(40 * 2**20)
    print("the same")
"""


@dataclass(frozen=True)
class Site:
    stored: Stored
    proxy: Faulty
    server: Server

    def trained(self, state: str = "COMPLETED", steps: int = 1, script: str = SAVE) -> str:
        """Train with a script; return the log."""
        number = self.stored.create(script.replace("STEPS", str(steps)), checkpoint_storage={"save_trial_latest": 9})
        client = self.stored.process.client()
        ended_as(client, number, state)
        return log_text(client, only_trial(client, number).id)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with rclone(tmp_path_factory.mktemp("rclone")) as server, faulty(server.url) as proxy:
        section = {**server.section, "endpoint_url": proxy.url}
        config = {"checkpoint_storage": section, "resource_manager": {"type": "local"}}
        with serving(json.dumps(config)) as process:
            yield Site(Stored(server, store_of(server), process), proxy, server)


@pytest.fixture(autouse=True)
def _well(site: Site) -> Iterator[None]:
    site.proxy.requests.clear()
    yield
    site.proxy.decide = lambda _method, _path: None


def first(count: int, fault: Fault, wanted: Callable[[str, str], bool]) -> Callable[[str, str], Fault | None]:
    """The first requests of a kind meet this fault."""
    met = iter(range(count))

    def decide(method: str, path: str) -> Fault | None:
        return fault if wanted(method, path) and next(met, None) is not None else None

    return decide


def is_part(method: str, path: str) -> bool:
    return method == "PUT" and "partNumber" in path


def is_small(method: str, path: str) -> bool:
    return method == "PUT" and "/small-" in path


def test_store_that_refuses_for_a_while_gets_everything_in_the_end(site: Site) -> None:
    faults = iter(
        [
            *[Fault(503, "SlowDown")] * 3,
            *[Fault(500, "InternalError")] * 3,
            *[Fault(429, "TooManyRequests")] * 3,
            *[Fault(403, "AuthenticationFailed")] * 2,  # as for a signature that has expired
        ]
    )
    site.proxy.decide = lambda method, path: (
        next(faults, None) if is_part(method, path) or is_small(method, path) else None
    )
    assert "the same" in site.trained()
    assert next(faults, None) is None


def test_lost_connections_cost_their_part_only(site: Site) -> None:
    site.proxy.decide = first(2, Fault(cut_after=3 * 2**20), is_part)
    assert "the same" in site.trained()
    parts = Counter(path.partition("partNumber=")[2][:1] for _, path, _ in site.proxy.requests if "partNumber" in path)
    assert parts == {"1": 1, "2": 1, "3": 1}  # what arrived; those that were cut are not counted


def test_download_goes_on_where_a_connection_broke(site: Site) -> None:
    site.proxy.decide = first(3, Fault(cut_after=5 * 2**20), lambda method, path: method == "GET" and "/large?" in path)
    assert "the same" in site.trained()


def test_slow_link_takes_longer_and_loses_nothing(site: Site) -> None:
    site.proxy.decide = lambda method, path: Fault(pause=0.01) if is_part(method, path) else None
    assert "the same" in site.trained()


def test_content_that_is_there_is_not_sent_again(site: Site) -> None:
    site.trained(steps=3)
    large = [size for method, path, size in site.proxy.requests if is_part(method, path)]
    assert sum(large) == 40 * 2**20  # once, for three checkpoints


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(403, "QuotaExceeded"), "cannot be used: its quota is used up (QuotaExceeded)"),
        (Fault(403, "RequestTimeTooSkewed"), "the clocks of the store and of the master differ by more than"),
    ],
    ids=lambda value: value.code if isinstance(value, Fault) else "",
)
def test_store_that_refuses_for_good_is_named_with_its_reason(site: Site, fault: Fault, words: str) -> None:
    site.proxy.decide = lambda method, path: fault if is_small(method, path) else None
    log = site.trained("ERROR")
    assert words in log
    assert "Signature" not in log.replace("SignatureDoesNotMatch", "")
    assert site.server.section["secret_key"] not in log
    wait_for(lambda: not _unknown(site), "the removal of what was sent")


def test_bucket_that_vanishes_is_named(site: Site) -> None:
    """The master's own calls find it missing too."""
    site.proxy.decide = lambda _method, _path: Fault(404, "NoSuchBucket")
    assert "s3://tm-checkpoints" in (log := site.trained("ERROR"))
    assert "cannot be used: there is no such bucket (NoSuchBucket)" in log


GROWS = """
import threading, time
from trainmaster import core

with core.init() as context:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
        file = open(path / "log", "wb")
        file.write(b"x" * 300 * 2**20)
        file.flush()
        def grow():
            for _ in range(100000):
                file.write(b"y" * 1000)
                file.flush()
        threading.Thread(target=grow, daemon=True).start()
"""


def test_file_that_grows_while_it_is_sent_is_named(site: Site) -> None:
    assert "changes while it is stored: close it before the checkpoint is" in site.trained("ERROR", script=GROWS)


EMPTY = """
import os
from trainmaster import core

with core.init() as context:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
        pass
    with context.checkpoint.store_path({"steps_completed": 2}) as (path, uuid):
        for name in ("a b", "\\u00fc\\u4e2d", "plus+and%20", "..dots..", "'quote\\""):
            (path / name).write_text(name)
    with context.checkpoint.restore_path(uuid) as found:
        print(sorted(each.name for each in found.iterdir()))
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, uuid):
        (path / "line\\nbreak").write_text("x")
"""


def test_odd_names_are_kept_and_unprintable_ones_refused(site: Site) -> None:
    log = site.trained("ERROR", script=EMPTY)
    assert """['\\'quote"', '..dots..', 'a b', 'metadata.json', 'plus+and%20', 'ü中']""" in log
    assert r"'line\nbreak' cannot be stored: '\n' is no printable character. Rename the file." in log


def _unknown(site: Site) -> list[str]:
    """Objects of no checkpoint."""
    client = site.stored.process.client()
    known = {row.uuid for experiment in client.experiments() for row in client.checkpoints(experiment.id)}
    return [key for key in site.stored.objects() if key.split("/")[0] not in known]


PAUSED = """
import time
from trainmaster import core

with core.init() as context:
    begun = context.info.latest_checkpoint
    if begun is not None:
        print("continued at", context.checkpoint.get_metadata(begun)["steps_completed"])
    else:
        with context.checkpoint.store_path({"steps_completed": 7}, wait=False) as (path, uuid):
            (path / "large").write_bytes(bytes(40 * 2**20))
        print("trains on")
        context.train.report_training_metrics(7, {"loss": 1.0})
        while not context.preempt.should_preempt():
            time.sleep(0.1)
"""


def test_pause_waits_for_checkpoint_on_its_way(site: Site) -> None:
    site.proxy.decide = lambda method, path: Fault(pause=0.01) if is_part(method, path) else None
    number = site.stored.create(PAUSED)
    client = site.stored.process.client()
    wait_for(
        lambda: client.trials(number) and "trains on" in log_text(client, only_trial(client, number).id), "training"
    )
    assert client.checkpoints(number) == []  # it exists when all of it is there
    client.pause(number)
    wait_for(lambda: client.experiment(number).state == "PAUSED" and client.checkpoints(number), "the pause")
    (row,) = client.checkpoints(number)
    assert (row.state, row.metadata["steps_completed"]) == ("COMPLETED", 7)
    wait_for(lambda: only_trial(client, number).state == "PAUSED", "the end of the job")
    client.activate(number)
    ended_as(client, number, "COMPLETED")
    assert "continued at 7" in log_text(client, only_trial(client, number).id)


def test_policy_keeps_latest_and_removes_other_objects(site: Site) -> None:
    number = site.stored.create(SAVE.replace("STEPS", "3"))
    client = site.stored.process.client()
    ended_as(client, number, "COMPLETED")
    rows = client.checkpoints(number)
    (latest,) = [row.uuid for row in rows if row.metadata["steps_completed"] == 3]
    gone = {row.uuid for row in rows} - {latest}
    wait_for(lambda: not any(key.split("/")[0] in gone for key in site.stored.objects()), "the removal of old ones")
    assert any(key.startswith(f"{latest}/") for key in site.stored.objects())


WALK = """
import random, sys
from trainmaster import core

with core.init() as context:
    trial = context.info.trial.trial_id
    latest = context.info.latest_checkpoint
    step = 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as path:
            step = int((path / "step").read_text())
    while step < 4:
        step += 1
        content = random.Random("%d %d" % (trial, step))
        with context.checkpoint.store_path({"steps_completed": step}, wait=step % 2 == 0) as (path, uuid):
            (path / "step").write_text(str(step))
            (path / "large").write_bytes(content.randbytes(18 * 2**20))
            for number in range(4):
                (path / ("small-%d" % number)).write_bytes(content.randbytes(1000))
        context.train.report_validation_metrics(step, {"loss": 1.0 / step})
        if context.preempt.should_preempt():
            sys.exit()
"""


def test_random_faults_lose_double_and_leave_nothing(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches save under a store that fails at random, a master that is killed, and people who pause and kill."""
    chance = random.Random(29)
    lock = threading.Lock()
    kinds = (
        *(Fault(503, "SlowDown"), Fault(500, "InternalError"), Fault(429, "TooManyRequests")),
        *(Fault(cut_after=0), Fault(cut_after=1), Fault(cut_after=2**20), Fault(pause=0.005)),
    )
    met: Counter[str] = Counter()

    def decide(method: str, _: str) -> Fault | None:
        with lock:
            if chance.random() > 0.15:
                return None
            met[method] += 1
            return chance.choice(kinds)

    site.proxy.decide = decide
    process = site.stored.process
    client = process.client()
    search = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2}
    number = site.stored.create(WALK, searcher=search, checkpoint_storage={"save_trial_latest": 9}, max_restarts=5)
    killed = site.stored.create(WALK, checkpoint_storage={"save_trial_latest": 9})
    for _ in range(2):
        wait_for(lambda: any(met.values()), "faults")
        time.sleep(4)
        process.kill()
        process.start()
        client = process.client()
        client.pause(number)
        time.sleep(2)
        client.activate(number)
    client.kill(killed)
    ended_as(client, number, "COMPLETED", 240)
    site.proxy.decide = lambda _method, _path: None
    assert {"PUT", "POST", "GET"} <= {*met}

    for trial in client.trials(number):
        rows = sorted(client.trial_checkpoints(trial.id), key=lambda row: row.steps_completed)
        assert [row.steps_completed for row in rows] == [1, 2, 3, 4], log_text(client, trial.id)
        for row in rows:
            content = random.Random(f"{trial.id} {row.steps_completed}")
            assert b"".join(site.stored.store.read(f"{row.uuid}/large")) == content.randbytes(18 * 2**20)
    # What was given up is removed by the janitor, also where the store refused that at first.
    monkeypatch.setattr(storage_audit, "YOUNG", -60.0)

    def agree() -> bool:
        config = parse_master(process.config.read_text())
        return examine_storage(config, process.data, lambda _: False) == 0

    wait_for(agree, "storage and database to agree", 120)
    told = capsys.readouterr().out
    assert "0 of which miss files; 0 folders that no row names" in told.splitlines()[-2], told
    assert site.stored.store.abort_parts("") == 0, "an upload in parts was left behind"
