"""What the profiler says of GPUs: of NVIDIA's through a real library with NVML's functions, of AMD's from files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpus.amd import add_gpu, add_processor
from tests.support.gpus.nvidia import FIRST, SECOND, THIRD, build_nvml
from trainmaster.core.gpus import open_reader

THREE = f"{FIRST},0,10,1000 {SECOND},1,20,2000 {THIRD},2,30,3000"
READ = "import json; from trainmaster.core.gpus import open_reader; print(json.dumps(open_reader()()))"
MEASURED = {
    FIRST: {"gpu_util": 10.0, "gpu_free_memory": 1000.0},
    SECOND: {"gpu_util": 20.0, "gpu_free_memory": 2000.0},
    THIRD: {"gpu_util": 30.0, "gpu_free_memory": 3000.0},
}


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


def read(nvml: Path, gpus: str, program: str = READ, **environ: str) -> object:
    """In a process of its own: a library that is loaded stays."""
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_VISIBLE_DEVICES")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "LD_LIBRARY_PATH": str(nvml), "FAKE_GPUS": gpus, **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("1,2", [SECOND, THIRD]),
        ("2", [THIRD]),
        (f"{THIRD},{FIRST}", [THIRD, FIRST]),
        ("GPU-2222", [SECOND]),
        ("0,7,1", [FIRST]),  # CUDA, too, ends there
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_only_the_jobs_own_gpus_are_measured(nvml: Any, visible: str, uuids: Any) -> None:
    assert read(nvml, THREE, CUDA_VISIBLE_DEVICES=visible) == {uuid: MEASURED[uuid] for uuid in uuids}


def test_all_that_can_be_used_where_nothing_is_said(nvml: Any) -> None:
    assert read(nvml, THREE) == MEASURED
    assert read(nvml, THREE.replace("2000", "2000,e4")) == {FIRST: MEASURED[FIRST], THIRD: MEASURED[THIRD]}


def test_gpu_part_reports_only_free_memory(nvml: Any) -> None:
    part = "MIG-44444444-0000-0000-0000-000000000004"
    assert read(nvml, f"{part},0,0,500,d", CUDA_VISIBLE_DEVICES=part) == {part: {"gpu_free_memory": 500.0}}


@pytest.mark.parametrize("failure", [{"FAKE_NVML_INIT": "9"}, {"LD_LIBRARY_PATH": "/nonexistent"}])
def test_without_a_driver_there_is_nothing_to_measure(nvml: Any, failure: Any) -> None:
    assert read(nvml, THREE, **failure) == {}


PROFILE = """
import json, time
from trainmaster import core

class Records(list):
    def add(self, kind, **fields):
        self.append(fields)

records = Records()
profiler = core.ProfilerContext("n0", records)
profiler.on(sampling_interval=0.1, samples_per_report=2)
while not any(fields["group"] == "gpu" for fields in records):
    time.sleep(0.05)
profiler.off()
print(json.dumps(next(fields for fields in records if fields["group"] == "gpu")))
"""


def test_the_profiler_reports_them_below_node_and_uuid(nvml: Any) -> None:
    told = read(nvml, THREE, PROFILE, CUDA_VISIBLE_DEVICES="1")
    assert told == {"group": "gpu", "steps_completed": 0, "metrics": {"n0": {SECOND: MEASURED[SECOND]}}}


def test_amds_gpus_are_read_from_files(tmp_path: Path) -> None:
    add_processor(tmp_path, 0)
    add_gpu(tmp_path, 2, minor=129, serial=0xAB, percent=7, used=30, total=100)
    add_gpu(tmp_path, 10, minor=130, serial=0, percent=50, used=200, total=100)
    add_gpu(tmp_path, 3, minor=131, serial=0xCD, percent=9, used=1, total=100)
    first = {"GPU-00000000000000ab": {"gpu_util": 7.0, "gpu_free_memory": 70.0}}
    second = {"GPU-00000000000000cd": {"gpu_util": 9.0, "gpu_free_memory": 99.0}}
    third = {"GPU-renderD130": {"gpu_util": 50.0, "gpu_free_memory": 0.0}}
    root = str(tmp_path)
    assert open_reader({}, root)() == {**first, **second, **third}
    assert open_reader({"ROCR_VISIBLE_DEVICES": "2,0"}, root)() == {**third, **first}
    assert open_reader({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000cd"}, root)() == second
    assert open_reader({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, root)() == third
    (tmp_path / "dev/dri/renderD129").unlink()  # another job's
    (tmp_path / "sys/class/drm/renderD131/device/mem_info_vram_used").unlink()
    assert open_reader({"HIP_VISIBLE_DEVICES": "0"}, root)() == {"GPU-00000000000000cd": {"gpu_util": 9.0}}
