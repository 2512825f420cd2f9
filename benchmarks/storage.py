"""Measures checkpoints in an object store: throughput beside `rclone copy` to the same server, and what a training
loses while one is sent."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Deadline, Unavailable, figure, say
from tests.support.master import ended_as, files, log_text, only_trial, serving
from tests.support.storage.servers import BUCKET, Server, rclone, rclone_binary

TURNS = 2
SETS = {"4 GB in 40 files": (40, 100 * 10**6), "2,000 files of 100 KB": (2000, 100 * 10**3)}

SCRIPT = """
import json, os, resource, shutil, subprocess, sys, time
from pathlib import Path
from trainmaster import core

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

what, source = json.loads(os.environ["WHAT"])
with core.init() as context:
    before = peak()
    if what == "moved":
        begun = time.perf_counter()
        uuid = context.checkpoint.upload(source, {"steps_completed": 1})
        up = time.perf_counter() - begun
        while True:  # the report of the checkpoint takes a moment, which is no part of the download
            try:
                context.checkpoint.download(uuid, "probe", selector=lambda name: name.endswith("-0"))
                break
            except core.CheckpointError:
                time.sleep(0.1)
        begun = time.perf_counter()
        context.checkpoint.download(uuid, source + ".down")
        print("FIGURES", json.dumps([up, time.perf_counter() - begun, peak() - before]))
    else:
        def step():  # of 20 ms: some Python, then the device
            until = time.perf_counter() + 0.004
            while time.perf_counter() < until:
                pass
            time.sleep(0.016)
        def steps(count):
            begun = time.perf_counter()
            for _ in range(count):
                step()
            return (time.perf_counter() - begun) / count
        steps(20)
        alone = steps(150)
        peer = subprocess.Popen(["nice", "-n", "15", *json.loads(os.environ["PEER"])])
        theirs = [steps(10)]
        while peer.poll() is None:
            theirs.append(steps(10))
        with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, uuid):
            for name in os.listdir(source):
                os.link(os.path.join(source, name), path / name) if os.stat(source).st_dev == os.stat(path).st_dev \\
                    else shutil.copy(os.path.join(source, name), path / name)
        beside = [steps(10)]
        while context.checkpoint._background._thread.is_alive():
            beside.append(steps(10))
        print("FIGURES", json.dumps([alone, sum(beside) / len(beside), sum(theirs) / len(theirs), peak() - before]))
        context.checkpoint.wait()
"""


def run(deadline: Deadline) -> None:
    """Print the figures of this section."""
    if not Path(rclone_binary()).exists():
        raise Unavailable("no rclone: it comes with the packages of the tests")
    folder = Path(tempfile.mkdtemp(prefix="tm-bench-", dir="/var/tmp"))
    try:
        with rclone(folder / "server") as server:
            config = {"checkpoint_storage": dict(server.section), "resource_manager": {"type": "local"}}
            with serving(json.dumps(config)) as process:
                for name, (count, size) in SETS.items():
                    _moved(deadline, name, _source(folder / "source", count, size), server, process)
        # On a site the server has a machine of its own.
        with rclone(folder / "apart", 19) as server:
            config = {"checkpoint_storage": dict(server.section), "resource_manager": {"type": "local"}}
            with serving(json.dumps(config)) as process:
                _beside(_source(folder / "source", 40, 100 * 10**6), server, process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _moved(deadline: Deadline, name: str, source: Path, server: Server, process: object) -> None:
    ours: list[list[float]] = []
    peers: list[list[float]] = []
    for _ in range(TURNS):
        ours.append(_trained(process, "moved", source))
        shutil.rmtree(f"{source}.down")
        peers.append(_copied(server, source))
        if not deadline.left:
            break
    size = sum(each.stat().st_size for each in source.iterdir()) / 1e6
    for place, way in enumerate(("up", "down")):
        mine, theirs = (statistics.median(each[place] for each in all_) for all_ in (ours, peers))
        say(
            "storage",
            f"{name}, {way}",
            f"{figure(size / mine)} MB/s",
            f"rclone copy {figure(size / theirs)} MB/s",
            f"{figure(theirs / mine)} of its throughput",
        )
    say("storage", f"{name}, memory of the job", f"{figure(max(each[2] for each in ours))} MB more")


def _beside(source: Path, server: Server, process: object) -> None:
    copy = [rclone_binary(), "copy", str(source), _remote(server), "--transfers", "8", "--config", os.devnull]
    alone, beside, theirs, memory = _trained(process, "beside", source, f"PEER={json.dumps(copy)}")
    say(
        "storage",
        "a step of 20 ms while 4 GB are sent",
        f"{figure((beside / alone - 1) * 100)} % longer than alone",
        f"beside rclone copy at the same priority {figure((theirs / alone - 1) * 100)} %",
        f"{figure(memory)} MB more memory",
    )


def _trained(process: object, what: str, source: Path, *variables: str) -> list[float]:
    """Run the script in a job; return its figures."""
    settings = {
        "name": "bench",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "m"},
        "max_restarts": 0,
        "environment": {"environment_variables": [f"WHAT={json.dumps([what, str(source)])}", *variables]},
        "checkpoint_storage": {"save_trial_latest": 0, "save_trial_best": 0},
    }
    client = process.client()  # type: ignore[attr-defined]
    number = client.create_experiment(json.dumps(settings), files(train__py=SCRIPT)).id
    ended_as(client, number, "COMPLETED", 600)
    for line in log_text(client, only_trial(client, number).id).splitlines():
        if "FIGURES " in line:
            return [float(value) for value in json.loads(line.partition("FIGURES ")[2])]
    raise Unavailable("the job printed no figures")


def _copied(server: Server, source: Path) -> list[float]:
    """Seconds of `rclone copy` up and down, with as many connections as ours."""
    remote = _remote(server)
    target = Path(f"{source}.peer")
    seconds = []
    for one, other in ((str(source), remote), (remote, str(target))):
        begun = time.perf_counter()
        subprocess.run([rclone_binary(), "copy", one, other, "--transfers", "8", "--config", os.devnull], check=True)
        seconds.append(time.perf_counter() - begun)
    shutil.rmtree(target)
    subprocess.run([rclone_binary(), "purge", remote, "--config", os.devnull], check=True)
    return seconds


def _remote(server: Server) -> str:
    return (
        f":s3,provider=Other,access_key_id='{server.section['access_key']}',"
        f"secret_access_key='{server.section['secret_key']}',endpoint='{server.url}':{BUCKET}/peer"
    )


def _source(folder: Path, count: int, size: int) -> Path:
    """Make files whose content nothing compresses and no two share."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    block = os.urandom(size)
    for number in range(count):
        (folder / f"file-{number}").write_bytes(number.to_bytes(8) + block[8:])
    return folder
