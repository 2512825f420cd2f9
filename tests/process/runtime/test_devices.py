"""A job whose node has not what it was given ends before the training, and only if that is sure."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpus.amd import add_gpu, add_processor
from tests.support.gpus.nvidia import FIRST, SECOND, THIRD, build_nvml

FOURTH = "GPU-44444444-0000-0000-0000-000000000004"
FOUR = [f"{uuid},{minor},0,0" for minor, uuid in enumerate((FIRST, SECOND, THIRD, FOURTH))]
LOOK = """
import json, os, sys
from trainmaster.runtime.devices import check_devices
from trainmaster.runtime.facts import read_facts
from trainmaster.runtime.job import JobDescription
root, slots, slot_type = sys.argv[1:]
name = "http://x"
kind = ("slurm", "slurm-job", "main", int(slots), slot_type)
job = JobDescription("/job", "a", "t", "tok", "c", name, None, *kind)
finding = check_devices(job, read_facts(os.environ, job), os.environ, root)
print(json.dumps([finding.missing, finding.warning]))
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


def node_with_driver(root: Path, *, devices: int = 4) -> Path:
    """What a kernel with NVIDIA's driver shows in /proc and /dev of a node with four GPUs."""
    for minor, uuid in enumerate((FIRST, SECOND, THIRD, FOURTH)):
        folder = root / f"proc/driver/nvidia/gpus/0000:{minor}7:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\nDevice Minor: \t {minor}\n"
        )
    (root / "proc/driver/nvidia/version").write_text("NVRM version: 580\n")
    (root / "dev").mkdir()
    for name in ["nvidiactl", *(f"nvidia{minor}" for minor in range(devices))]:
        (root / "dev" / name).touch()
    return root


def look(root: Path, slots: int, slot_type: str = "cuda", **environ: str) -> tuple[str | None, str | None]:
    """In a process of its own: a library that is loaded stays."""
    inherited = {name: value for name, value in os.environ.items() if "VISIBLE_DEVICES" not in name}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(root), str(slots), slot_type],
        env={**inherited, "TRAINMASTER_JOB_ID": "1", "TRAINMASTER_NODE_NAME": "n1", **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    missing, doubt = json.loads(done.stdout)
    return missing, doubt


@pytest.mark.parametrize(
    ("gpus", "environ", "sentence"),
    [
        (
            FOUR[:2] + FOUR[3:],
            {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
            f"4 GPUs (0, 1, 2, 3) but the container sees 3: GPU 2 ({THIRD}) is missing;",
        ),
        (
            FOUR[:1],
            {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "0,3"},
            f"2 GPUs (0, 1) but the container sees 1: GPU 3 ({FOURTH}) is missing;",
        ),
        (
            FOUR[2:],
            {"TRAINMASTER_SLOT_IDS": "[1, 2, 3]"},
            f"3 GPUs (1, 2, 3) but the container sees 2: GPU 1 ({SECOND}) is missing;",
        ),
        (
            [*FOUR[:3], FOUR[3] + ",e15"],
            {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
            f"sees 3: GPU 3 ({FOURTH}) is missing (GPU 3: GPU is lost);",
        ),
        (
            FOUR[:1],
            {"CUDA_VISIBLE_DEVICES": f"{FIRST},{THIRD},{FOURTH}"},
            f"sees 1: GPU {THIRD}, {FOURTH} are missing;",
        ),
        ([], {"SLURM_STEP_GPUS": "0"}, f"node n1 was given 1 GPU (0) but the container sees none: GPU 0 ({FIRST}) is"),
    ],
)
def test_gpus_that_are_missing_are_named(nvml: Any, tmp_path: Path, gpus: Any, environ: Any, sentence: str) -> None:
    root = node_with_driver(tmp_path)
    missing, doubt = look(root, 4, LD_LIBRARY_PATH=str(nvml), FAKE_GPUS=" ".join(gpus), **environ)
    assert doubt is None
    assert sentence in (missing or ""), missing
    assert "nvidia-smi" in (missing or "")


@pytest.mark.parametrize(
    ("gpus", "environ"),
    [
        (FOUR, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}),
        (FOUR, {"CUDA_VISIBLE_DEVICES": "2"}),
        (FOUR[2:], {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}),  # control groups hide the others
        ([f"{gpu},e4" for gpu in FOUR[:2]] + FOUR[2:], {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2-3"}),
        (FOUR, {"CUDA_VISIBLE_DEVICES": f"{FOURTH},GPU-1111"}),
        (FOUR[:1], {"TRAINMASTER_SLOT_IDS": "[3]"}),
        ([FOUR[0] + ",d"], {"CUDA_VISIBLE_DEVICES": "0,1"}),  # parts of one GPU
        (["MIG-1,0,0,0,d", "MIG-2,0,0,0,d"], {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}),
    ],
)
def test_complete_gpus_raise_no_error_or_warning(nvml: Any, tmp_path: Path, gpus: Any, environ: Any) -> None:
    root = node_with_driver(tmp_path)
    assert look(root, 4, LD_LIBRARY_PATH=str(nvml), FAKE_GPUS=" ".join(gpus), **environ) == (None, None)


@pytest.mark.parametrize(
    ("environ", "doubt"),
    [
        ({"FAKE_NVML_INIT": "18"}, "node n1 was given 2 GPUs (0, 1), but they cannot be counted: Driver/library"),
        ({"LD_LIBRARY_PATH": "/nonexistent"}, "cannot be counted: libnvidia-ml.so.1: cannot open"),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, "CUDA_VISIBLE_DEVICES is 2,3 on node n1, but the container sees 2 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "node n1 was given 4 GPUs, but the container sees 2"),
    ],
)
def test_a_doubt_ends_nothing(nvml: Any, tmp_path: Path, environ: Any, doubt: str) -> None:
    root = node_with_driver(tmp_path)
    given = {"LD_LIBRARY_PATH": str(nvml), "FAKE_GPUS": " ".join(FOUR[:2]), "CUDA_VISIBLE_DEVICES": "0,1"}
    missing, said = look(root, 4, **{**given, **environ})
    assert missing is None
    assert doubt in (said or ""), said


HANG = """
import os
from trainmaster.runtime.devices import DeviceCheck
from trainmaster.runtime.facts import read_facts
from trainmaster.runtime.job import JobDescription
job = JobDescription("/job", "a", "t", "tok", "c", "http://x", None, "slurm", "slurm-job", "main", 2, "cuda")
check = DeviceCheck(job, read_facts(os.environ, job), os.environ, os.environ["ROOT"])
check.start()
print(check.result(0.2), flush=True)
os._exit(0)
"""


def test_a_driver_that_hangs_is_not_waited_for(nvml: Any, tmp_path: Path) -> None:
    root = node_with_driver(tmp_path)
    hangs = {"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML_HANGS": "3600", "CUDA_VISIBLE_DEVICES": "0,1", "ROOT": str(root)}
    known = {"TRAINMASTER_JOB_ID": "1", "TRAINMASTER_NODE_NAME": "n1"}
    done = subprocess.run(
        [sys.executable, "-c", HANG], env={**os.environ, **known, **hangs}, capture_output=True, text=True, timeout=60
    )
    assert "the driver of the GPUs of node n1 has not answered for" in done.stdout, done.stderr


def test_a_container_without_any_device_is_sure(tmp_path: Path) -> None:
    root = node_with_driver(tmp_path, devices=0)
    missing, _ = look(root, 1, CUDA_VISIBLE_DEVICES="0", LD_LIBRARY_PATH="/nonexistent")
    assert "(0) but the container sees none (no /dev/nvidia0 or other device)" in (missing or ""), missing


def test_gpus_that_a_site_pretends_to_have_are_left_alone(tmp_path: Path) -> None:
    missing, doubt = look(tmp_path, 2, CUDA_VISIBLE_DEVICES="0,1")
    assert (missing, doubt) == (None, "node n1 was given 2 GPUs (0, 1), but its kernel has no NVIDIA driver")
    assert look(tmp_path, 2, "cpu", CUDA_VISIBLE_DEVICES="0,1") == (None, None)
    assert look(tmp_path, 0, CUDA_VISIBLE_DEVICES="0,1") == (None, None)


def test_amds_gpus_are_counted(tmp_path: Path) -> None:
    doubt = "node n1 was given 2 GPUs (0, 1), but its kernel has no driver for ROCm's GPUs"
    assert look(tmp_path, 2, "rocm", ROCR_VISIBLE_DEVICES="0,1") == (None, doubt)
    add_processor(tmp_path, 0)
    for number in (1, 2):
        add_gpu(tmp_path, number, minor=127 + number, serial=number)
    missing, _ = look(tmp_path, 2, "rocm", ROCR_VISIBLE_DEVICES="0,1")
    assert "sees none (no /dev/kfd)" in (missing or ""), missing
    (tmp_path / "dev/kfd").touch()
    assert look(tmp_path, 2, "rocm", ROCR_VISIBLE_DEVICES="0,1") == (None, None)
    (tmp_path / "dev/dri/renderD128").unlink()
    missing, _ = look(tmp_path, 2, "rocm", ROCR_VISIBLE_DEVICES="0,1")
    assert "node n1 was given 2 GPUs (0, 1) but the container sees 1;" in (missing or ""), missing
    assert look(tmp_path, 2, "rocm") == (None, "node n1 was given 2 GPUs, but the container sees 1")


@pytest.fixture
def python_on_a_gpu_node(nvml: Any, tmp_path: Path) -> Any:
    """A Python in whose /proc and /dev there is NVIDIA's driver: mounts in a namespace of its own."""
    node = node_with_driver(tmp_path / "node")
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c '"
        f'mount -t tmpfs none /proc/driver && cp -r {node}/proc/driver/. /proc/driver && exec "$@"\' sh '
        f'{shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o755)
    if subprocess.run([script, "-c", ""], capture_output=True).returncode:
        pytest.skip("mounting over /proc/driver needs to be root, in a machine that lets it")
    return {"python": str(script), "LD_LIBRARY_PATH": str(nvml)}


def test_a_job_ends_before_its_training_when_a_gpu_is_missing(stage: Any, python_on_a_gpu_node: Any) -> None:
    job, master = stage("echo never", slots=4, slot_type="cuda")
    status, output = job.run(
        **python_on_a_gpu_node, CUDA_VISIBLE_DEVICES="0,1,2,3", FAKE_GPUS=" ".join(FOUR[:2] + FOUR[3:])
    )
    assert status == 69, output
    record = master.exits[0]
    assert (record["exit_code"], record["began"]) == (69, False)
    assert f"node n0 was given 4 GPUs (0, 1, 2, 3) but the container sees 3: GPU 2 ({THIRD}) is" in record["message"]
    assert "never" not in master.lines()


def test_a_job_that_sees_its_gpus_trains(stage: Any, python_on_a_gpu_node: Any) -> None:
    job, master = stage("echo trains", slots=4, slot_type="cuda")
    status, output = job.run(**python_on_a_gpu_node, CUDA_VISIBLE_DEVICES="0,1,2,3", FAKE_GPUS=" ".join(FOUR))
    assert (status, master.lines()) == (0, ["trains"]), output
    assert [line for line in master.lines(source="runtime") if "GPU" in line] == []


def test_job_warns_of_unverifiable_gpus_and_trains(stage: Any) -> None:
    job, master = stage("echo trains", slots=2, slot_type="cuda")
    status, output = job.run(CUDA_VISIBLE_DEVICES="0,1", LD_LIBRARY_PATH="/nonexistent")
    assert (status, master.lines()) == (0, ["trains"]), output
    said = [record for record in master.streams["log-0"] if "was given 2 GPUs (0, 1), but" in record.get("line", "")]
    assert [record["level"] for record in said] == ["WARNING"]


def test_a_node_with_too_few_slots_is_named(stage: Any) -> None:
    job, master = stage("echo never", work={"num_nodes": 2}, slots=4, slot_type="cuda")
    nodes = [
        job.start(node_rank=rank, num_nodes=2, CUDA_VISIBLE_DEVICES=devices) for rank, devices in ((0, "0,1"), (1, "0"))
    ]
    for node, left in zip(nodes, (75, 69), strict=True):  # of the two statuses only the second speaks against the node
        output, _ = node.communicate(timeout=60)
        assert node.returncode == left, output
    named = "the 2 nodes have 3 slots instead of 4: node 1 (127.0.0.1) has 1 where others have 2;"
    for record in master.exits.values():
        assert named in record["message"]
        assert not record["began"]


def test_single_node_job_with_too_few_slots_reports_it(stage: Any) -> None:
    job, master = stage("echo never", slots=2, slot_type="cuda")
    assert job.run(CUDA_VISIBLE_DEVICES="0")[0] == 69
    assert "node n0 has 1 slots instead of 2; " in master.exits[0]["message"]
