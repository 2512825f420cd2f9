"""The Charliecloud runtime with a real `ch-run`, as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import charliecloud, images
from tests.support.cluster.layout import USERS, Layout
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users, run_as
from trainmaster.containers import Bind, ContainerStart, container_runtime
from trainmaster.dispatchers.conformance import programs

TELLS = """
import json, os, sys
with open(sys.argv[1] + "/facts.json", "w") as record:
    json.dump({
        "environment": dict(os.environ), "cwd": os.getcwd(), "home": os.listdir(os.path.expanduser("~")),
        "tmp": os.listdir("/tmp"), "seen": os.path.exists("/mnt/deep/data/hello"), "uid": os.getuid(),
    }, record)
open("/tmp/left-behind", "w").close()
sys.exit(5)
"""


@pytest.fixture(scope="module")
def ch_run() -> Path:
    try:
        ensure_users()
        return charliecloud.install(Layout.from_environment())
    except Unavailable as reason:
        pytest.skip(f"no Charliecloud: {reason}")


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tm-ch-", dir="/var/lib"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def started(place: Path, ch_run: Path, image: str, binds: list[Bind]) -> subprocess.CompletedProcess[str]:
    job, scratch = place / "jobs" / "det-1", place / "scratch"
    job.mkdir(parents=True)
    scratch.mkdir()
    for name, file in programs.runtime(TELLS).items():
        (job / name).write_bytes(file.content)
    start = ContainerStart(
        job, image, binds=binds, scratch=[str(scratch)], variables={"LITERAL": "$(id) `id` ${HOME} \"'"}
    )
    (job / "start.sh").write_text(container_runtime("charliecloud", str(ch_run)).start_script(start))
    subprocess.run(["chown", "-R", USERS[0], str(place / "jobs"), str(scratch)], check=True)
    environment = {"SLURM_JOB_ID": "12", "CUDA_VISIBLE_DEVICES": "0,1", "SECRET_OF_THE_NODE": "x"}
    done = run_as(USERS[0], ["bash", str(job / "start.sh")], environment=environment)
    assert not list(scratch.iterdir()), "the private folder stayed behind"
    return done


def test_real_container_sees_only_what_job_was_given(place: Path, ch_run: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "hello").write_text("x")
    base = images.base_system(Layout.from_environment())
    done = started(place, ch_run, str(base), [Bind(str(place / "data"), "/mnt/deep/data")])
    assert done.returncode == 5, done.stderr
    facts = json.loads((place / "jobs/det-1/facts.json").read_text())
    inside = facts["environment"]
    assert inside["LITERAL"] == "$(id) `id` ${HOME} \"'"
    assert (inside["SLURM_JOB_ID"], inside["CUDA_VISIBLE_DEVICES"]) == ("12", "0,1")
    assert inside["HOME"] == f"/home/{USERS[0]}"
    assert not {"SECRET_OF_THE_NODE", "TMPDIR"} & set(inside)
    assert facts["cwd"] == str(place / "jobs/det-1")
    assert (facts["home"], facts["tmp"], facts["seen"]) == ([], [], True)
    assert facts["uid"] == (place / "scratch").stat().st_uid != os.getuid()
    assert not (base / "mnt/deep").exists(), "the shared image was written to"


@pytest.mark.parametrize("image", ["bare", "gone"])
def test_failed_start_is_explained(place: Path, ch_run: Path, image: str) -> None:
    bare = place / "bare"
    for name in ("bin", "dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "usr/bin", "var/tmp"):
        (bare / name).mkdir(parents=True)
    for name in ("passwd", "group"):
        (bare / "etc" / name).touch()
    done = started(place, ch_run, str(place / image), [])
    cause = container_runtime("charliecloud").explain(done.stdout + done.stderr)
    assert cause is not None, done.stderr
    words = {"bare": "has no working Python", "gone": "cannot be read on the node"}
    assert words[image] in cause.text
    assert cause.final
