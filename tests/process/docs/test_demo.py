"""`scripts/demo`: what a newcomer sees first."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cluster.layout import USERS
from tests.support.cluster.users import ensure_users
from tests.support.master import remove_folder, wait_for
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport

ROOT = Path(__file__).resolve().parents[3]
DEMO = [sys.executable, str(ROOT / "scripts/parts/demo.py")]
ORDINARY = USERS[0]


@pytest.fixture
def place() -> Iterator[Path]:
    """TMPDIR of a demo, as an ordinary user's."""
    folder = Path(tempfile.mkdtemp(prefix="tm-demo-", dir="/var/tmp"))
    folder.chmod(0o1777)
    yield folder
    remove_folder(folder)


def start(place: Path, *arguments: str, user: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(place), "DET_USER": "someone else", "PYTHONDONTWRITEBYTECODE": "1"}
    who: dict[str, Any] = {}
    if user:
        account = pwd.getpwnam(user)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        environment |= {"HOME": account.pw_dir, "USER": user, "LOGNAME": user}
    return subprocess.Popen(
        [*DEMO, *arguments], cwd="/", env=environment, text=True, process_group=0,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **who,
    )  # fmt: skip


def left_by(place: Path) -> list[str]:
    """Processes that have the folder in their command line, environment or as their working folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            facts = [(process / "cmdline").read_bytes(), (process / "environ").read_bytes()]
            facts.append(os.fsencode(os.readlink(process / "cwd")))
        except OSError:
            continue
        if any(os.fsencode(place) in fact for fact in facts):
            found.append(f"{process.name}: {facts[0].decode(errors='replace')}")
    return found


def files_in(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if not path.is_dir()]


def nothing_is_left(place: Path) -> None:
    """A job whose end is known may still be leaving, as it would without the demo."""
    wait_for(lambda: not left_by(place), "the last process to leave")
    assert files_in(place) == []


def can_run_as(user: str) -> bool:
    if os.geteuid() != 0:
        return False
    ensure_users()
    account = pwd.getpwnam(user)
    probe = ["test", "-r", DEMO[1], "-a", "-x", DEMO[0]]
    return (
        subprocess.run(probe, user=account.pw_uid, group=account.pw_gid, extra_groups=[], check=False).returncode == 0
    )


def check_the_search(out: str, err: str) -> None:
    """What the demo prints of its search."""
    rows = re.findall(r"^ +(\d+) \| hidden=\S+ .* \| +([0-9.]+) \| +(\d+) \| COMPLETED \| +(yes|no) \| +0$", out, re.M)
    assert sorted(int(row[0]) for row in rows) == list(range(1, 17))
    errors = [float(row[1]) for row in rows]
    assert errors == sorted(errors)
    assert errors[0] < 0.1  # it really learned to read digits
    best = re.search(
        r"^best trial: (\d+) \(validation_error ([0-9.]+); hidden=\d+ momentum=\S+ learning_rate=\S+\)$", out, re.M
    )
    assert best is not None
    assert (best[1], float(best[2])) == (rows[0][0], pytest.approx(errors[0], abs=1e-4))  # type: ignore[comparison-overlap]
    epochs = [int(row[2]) for row in rows]
    assert re.search(r"^  http://127\.0\.0\.1:\d+/ui/sign-in\?to=experiments/1#ticket=\S+$", err, re.M)
    saved = re.search(r"^early stopping: (\d+) epochs instead of 256, (\d+) % saved$", out, re.M)
    assert saved is not None
    assert int(saved[1]) == sum(epochs) <= 0.6 * 256
    assert [epoch < 16 for epoch in epochs] == [row[3] == "yes" for row in rows]
    assert "COMPLETED [####################] 100.0 %" in err


@pytest.mark.slow
def test_it_searches_and_leaves_nothing_behind(place: Path) -> None:
    """As an ordinary user where that can be had, as newcomers are."""
    with start(place, user=ORDINARY if can_run_as(ORDINARY) else None) as demo:
        out, err = demo.communicate(timeout=400)
    assert demo.returncode == 0, err
    check_the_search(out, err)
    nothing_is_left(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "number"),
    [("Starting a master", signal.SIGINT), ("RUNNING", signal.SIGHUP)],
)
def test_an_interrupt_stops_all_it_started(place: Path, moment: str, number: signal.Signals) -> None:
    with start(place) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if moment in line:
                break
        if moment == "RUNNING":
            wait_for(lambda: [p for p in left_by(place) if "train.py" in p], "a training process")
        os.killpg(demo.pid, number)
        os.killpg(demo.pid, number)  # people press it twice
        out, err = demo.communicate(timeout=200)
    assert (demo.returncode, out) == (130, "")
    assert err.endswith("Interrupted; stopping everything.\n")
    nothing_is_left(place)


def test_a_folder_that_stays_is_named(place: Path) -> None:
    if os.geteuid() == 0 and not can_run_as(ORDINARY):
        pytest.skip("root, who may remove all folders, cannot run it as another account here")
    stays = place / "stays"
    (stays / "of-somebody-else").mkdir(parents=True)
    stays.chmod(0o555)
    program = f"import demo; demo.LEAVE_DEADLINE = 0.1; demo.remove(demo.Path({str(stays)!r}))"
    account = pwd.getpwnam(ORDINARY) if os.geteuid() == 0 else None
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts/parts'}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(  # type: ignore[call-overload]
        [sys.executable, "-c", program], cwd="/", env=environment, capture_output=True, text=True, check=True, **who
    )
    assert done.stderr == f"demo: {stays} cannot be removed. Remove it yourself.\n"
    stays.chmod(0o755)


@pytest.mark.slow
def test_kept_it_can_be_looked_at_as_it_says(place: Path) -> None:
    with start(place, "--keep") as demo:
        out, err = demo.communicate(timeout=400)
    assert demo.returncode == 0, err
    check_the_search(out, err)
    shown = dict(re.findall(r"(DET_[A-Z]+)=(\S+)", out))
    http = Transport(shown["DET_MASTER"])
    master = Master(http)
    master.login(shown["DET_USER"], shown["DET_PASS"])
    assert len(master.trials(1)) == 16
    http.close()
    link = re.search(r"^  (http://\S+/ui/sign-in)\?to=experiments/1#ticket=(\S+)$", out, re.M)
    assert link is not None
    assert link[1] == f"{shown['DET_MASTER']}/ui/sign-in"
    signed_in = httpx.post(
        f"{shown['DET_MASTER']}/session", json={"ticket": link[2]}, headers={"X-Trainmaster": "page"}
    )
    assert signed_in.status_code == 200
    command = re.search(r"^  (\S+/det) experiment list-trials 1$", out, re.M)
    assert command is not None
    listed = subprocess.run(
        [command[1], "experiment", "list-trials", "1", "--csv"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(place), **shown}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(listed.stdout.splitlines()) == 17
    stop = re.search(r"^  kill (\d+); rm -r (\S+)$", out, re.M)
    assert stop is not None
    os.kill(int(stop[1]), signal.SIGTERM)
    wait_for(lambda: not left_by(place), "the master and its database to stop")
    assert Path(stop[2]).parent == place
