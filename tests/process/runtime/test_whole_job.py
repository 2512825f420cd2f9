"""One node, one job, from the lease to the exit record."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest


def archive(**files: str) -> str:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))
    return packed.getvalue()  # type: ignore[return-value]


SCRIPT = """
import os, sys, json
print("WARNING: careful")
print("[rank=3] from three")
print("10%\\r50%\\r100%")
print("to stderr", file=sys.stderr)
print(json.dumps({k: v for k, v in os.environ.items() if k.startswith("DET_")}))
print(os.environ["GREETING"])
print(sorted(os.listdir(os.environ["DET_RUN_DIR"] + "/info")))
"""


def test_a_job_runs_its_entrypoint_and_reports_everything(stage: Any) -> None:
    job, master = stage("python3 train.py --lr 0.1", context=archive(**{"train.py": SCRIPT}))
    status, output = job.run()
    assert status == 0, output
    lines = master.lines()
    assert "hello 'you' \"there\" A=b=c" in lines
    assert {"line": "from three", "rank": 3, "stdtype": "stdout", "level": "INFO"}.items() <= next(
        record for record in master.streams["log-0"] if record.get("line") == "from three"
    ).items()
    assert next(r for r in master.streams["log-0"] if r.get("line") == "WARNING: careful")["level"] == "WARNING"
    assert next(r for r in master.streams["log-0"] if r.get("line") == "to stderr")["stdtype"] == "stderr"
    assert "100%" in lines
    told = next(json.loads(line) for line in lines if line.startswith("{"))
    assert told["DET_TRIAL_ID"] == "7"
    assert told["DET_SLOT_IDS"] == "[0,1]"
    assert json.loads(told["DET_HPARAMS"]) == {"lr": 0.1, "layers": [1, 2]}
    assert told["DET_MASTER"] == master.url
    assert told["DET_AGENT_ID"] == "n0"  # as its scheduler calls the node, whatever the host calls itself
    assert {"DET_MASTER", "DET_CLUSTER_ID", "DET_AGENT_ID", "DET_SLOT_IDS", "DET_TASK_ID", "DET_ALLOCATION_ID"} <= set(
        told
    )
    assert master.leases == [
        {
            "job_id": "101",
            "run_id": master.leases[0]["run_id"],
            "node_rank": 0,
            "num_nodes": 1,
            "node_name": "n0",
            "slot_ids": [0, 1],
            "addresses": ["127.0.0.1"],
            "image_digest": "",
            "fetches_context": True,
        }
    ]
    record = job.exit_record()
    assert record == master.exits[0]
    assert record["exit_code"] == 0
    assert record["signal"] is None
    assert record["preempted"] is None
    assert record["spool"]["log-0"] == len(job.spool("log-0")) == len(master.streams["log-0"])
    assert (job.folder / "spool" / "log-0.acked").read_text() == f"{record['spool']['log-0']}\n"


def test_a_given_node_folder_is_used_and_left_empty(stage: Any, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    job, master = stage("umask; pwd; env | grep ^TRAINMASTER_ | cut -d= -f1 | sort", slots=1)
    status, _ = job.run(TRAINMASTER_NODE_DIR=str(folder), TRAINMASTER_SLOT_IDS="[0]")
    assert status == 0
    assert master.lines()[1:] == [f"{folder}/workdir", "TRAINMASTER_DISTRIBUTED_PORT", "TRAINMASTER_RUN_DIR"]
    # What the training writes is as readable as the user's own settings make it.
    assert int(master.lines()[0], 8) == current_umask()
    assert list(folder.iterdir()) == []


def current_umask() -> Any:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("length", [74, 75, 80, 81])
def test_long_temporary_folder_leaves_room_for_sockets(stage: Any, length: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        place = os.path.join(short, "x" * (length - len(short) - 1))
        os.mkdir(place)
        job, master = stage("echo here")
        status, output = job.run(TMPDIR=place)
    assert (status, master.lines()) == (0, ["here"]), output


def test_private_folder_is_removed_without_following_links(stage: Any, tmp_path: Path) -> None:
    private, outside = tmp_path / "private", tmp_path / "outside"
    (private / "tmp").mkdir(parents=True)
    outside.mkdir()
    (outside / "precious").write_text("x")
    leaves = f"mkdir -p a/b; echo x > a/b/c; ln -s {outside} a/folder; ln -s gone a/d; ls a"
    job, master = stage(f'cd "$TMPDIR"; {leaves}')
    assert job.run(TMPDIR=str(private / "tmp"), TRAINMASTER_PRIVATE=str(private))[0] == 0
    assert master.lines() == ["b", "d", "folder"]
    assert not private.exists()
    assert (outside / "precious").read_text() == "x"


def test_a_node_folder_with_something_in_it_is_left_alone(stage: Any, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    job, master = stage("echo never")
    status, output = job.run(TRAINMASTER_NODE_DIR=str(tmp_path))
    assert status == 78
    assert "must name an empty folder" in output
    assert (tmp_path / "precious").read_text() == "x"
    assert master.leases == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_mount_in_work_directory_is_visible_and_survives_job(stage: Any, tmp_path: Path) -> None:
    """Also where it comes from the same file system, as a container's mounts do."""
    node, shared = tmp_path / "node", tmp_path / "shared data"
    place = node / "workdir" / "deep er" / "data"
    for folder in (place, shared):
        folder.mkdir(parents=True)
    (shared / "precious").write_text("x")
    subprocess.run(["mount", "--bind", str(shared), str(place)], check=True)
    try:
        job, master = stage("cat 'deep er/data/precious'; echo; touch 'deep er/own'; echo new > 'deep er/data/new'")
        status, output = job.run(TRAINMASTER_NODE_DIR=str(node))
        assert (status, master.lines()) == (0, ["x"]), output
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert {path.name for path in shared.iterdir()} == {"precious", "new"}
    assert not (place.parent / "own").exists()


def test_a_configuration_too_long_for_a_variable_is_in_the_file(stage: Any) -> None:
    script = """
import os
from trainmaster import core

assert "DET_EXPERIMENT_CONFIG" not in os.environ
print(len(core.get_cluster_info().trial._config["text"]))
"""
    job, master = stage(
        "python3 train.py", context=archive(**{"train.py": script}), work={"config": {"text": "x" * 200_000}}
    )
    status, output = job.run()
    assert status == 0, output
    assert master.lines() == ["200000"]


def test_the_real_package_wins_over_the_alias(stage: Any) -> None:
    # As with a `determined` in the site-packages of an interpreter that the runtime does not know: it comes
    # after the alias on the path.
    script = """
import os, sys
sys.path.append(os.path.join(os.getcwd(), "site"))
import determined
print(determined.__version__, determined.inner.VALUE)
"""
    job, master = stage(
        "python3 train.py",
        context=archive(
            **{
                "train.py": script,
                "site/determined/__init__.py": "__version__ = 'real'\nfrom determined import inner\n",
                "site/determined/inner.py": "VALUE = 7\n",
            }
        ),
    )
    status, output = job.run()
    assert status == 0, output
    chosen = "`import determined` is this image's own package, release real; TRAINMASTER_DETERMINED=ours takes"
    assert master.lines() == [f"{chosen} trainmaster's", "real 7"]


@pytest.mark.parametrize("has_package", [True, False])
@pytest.mark.parametrize(
    ("module", "status", "words"),
    [
        ("horovod", 78, "horovod is not in this image"),
        ("deepspeed", 78, "deepspeed is not in this image"),
        ("torch_distributed", 78, "torch is not in this image"),
        ("tensorflow", 64, "there is no script to run"),
        ("wrap_rank", 64, "usage: python3 -m trainmaster.launchers.wrap_rank"),
    ],
)
def test_own_launchers_replace_missing_or_ssh_based_ones(
    stage: Any, has_package: bool, module: str, status: int, words: str
) -> None:
    site = {
        "site/determined/__init__.py": "",
        "site/determined/launch/__init__.py": "",
        **{f"site/determined/launch/{name}.py": "print('its own')" for name in ("horovod", "deepspeed", module)},
    }
    files = {"train.py": "", **(site if has_package else {})}
    launched = f"PYTHONPATH=$PYTHONPATH:$PWD/site {sys.executable} -S -m determined.launch.{module}"
    job, master = stage(f"{launched} {'' if status == 64 else 'train.py'}", context=archive(**files))
    code, output = job.run()
    if has_package and module not in ("horovod", "deepspeed"):
        # Another line says which `determined` was chosen; the two streams of a program have no common order.
        assert (code, "its own" in master.lines()) == (0, True), output
    else:
        assert code == status, output
        assert words in " ".join(master.lines())


def test_job_without_trial_is_called_program(stage: Any) -> None:
    job, master = stage("exit 3", work={"trial": None, "task_type": "COMMAND"})
    status, _ = job.run()
    assert (status, master.exits[0]["message"]) == (3, "the program ended with status 3")
