"""The Apptainer runtime: its command line, its checks of images, and real starts."""

from __future__ import annotations

import csv
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import apptainer_command, python_image, slurm_cluster
from tests.support.cluster.users import run_as
from tests.support.container_starts import called
from trainmaster.containers import Bind, ContainerStart, UnknownRuntime, container_runtime, resolve_image
from trainmaster.dispatchers.conformance import programs

__all__ = ["apptainer_command", "python_image", "slurm_cluster"]

TELLS = """
import json, os, sys
with open(sys.argv[1] + "/facts.json", "w") as record:
    json.dump({
        "environment": dict(os.environ), "cwd": os.getcwd(), "home": os.listdir(os.path.expanduser("~")),
        "tmp": os.listdir("/tmp"), "seen": [p for p in ("/mnt/data/hello", "/etc/shadow-of-host") if os.path.exists(p)],
        "below": [p for p in ("data/hello", "one file") if os.path.exists("/run/determined/workdir/deep er/" + p)],
        "root_writable": os.access("/usr", os.W_OK),
    }, record)
open("/tmp/left-behind", "w").close()
sys.exit(5)
"""


def test_the_words_of_a_start(tmp_path: Path) -> None:
    odd = tmp_path / 'a,b"c'
    start = ContainerStart(tmp_path / "det-1", "/images/a b.sif", gpus=True, binds=[Bind(str(odd), "/mnt")])
    call, _ = called("apptainer", start, tmp_path)
    assert call.argv[:9] == [
        *("--silent", "exec", "--cleanenv", "--no-eval", "--no-mount", "tmp", "--nv", "--pwd", str(tmp_path / "det-1"))
    ]
    mounts = [next(csv.reader([mount])) for mount in call.values("--mount")]
    assert mounts[:2] == [
        ["type=bind", f"source={tmp_path}/det-1", f"destination={tmp_path}/det-1"],
        ["type=bind", f"source={odd}", "destination=/mnt"],
    ]
    image = call.argv.index("/images/a b.sif")
    assert call.argv[image + 1 : image + 4 : 2] == ["python3", "-c"]


def test_no_gpu_flag_without_gpus_and_a_users_tmp_wins() -> None:
    start = ContainerStart(job_folder=Path("/j"), image="/i.sif", binds=[Bind("/scratch", "/tmp/")])
    script = container_runtime("singularity").start_script(start)
    assert "--nv" not in script
    assert "destination=/var/tmp" not in script
    assert "SINGULARITYENV_" in script
    assert "APPTAINERENV_" not in script


@pytest.mark.parametrize(("image", "anew"), [("docker://org/name:1", True), ("/images/a.sif", False)])
def test_fresh_image_is_fetched_without_cache(image: str, anew: bool) -> None:
    for fresh in (True, False):
        script = container_runtime("apptainer").start_script(
            ContainerStart(job_folder=Path("/j"), image=image, fresh=fresh)
        )
        assert ("--disable-cache" in script) is (fresh and anew)


def test_images_are_looked_at(tmp_path: Path) -> None:
    check = container_runtime("apptainer").check
    assert check("docker://org/name:tag") == ()
    assert "environment.image" in check("")[0]
    assert "full path" in check("image.sif")[0]
    assert "it does not exist, cannot be read" in check(str(tmp_path / "gone.sif"))[0]
    text = tmp_path / "text.sif"
    text.write_text("not an image")
    assert "SIF or squashfs" in check(str(text))[0]
    (tmp_path / "folder").mkdir()
    assert "an unpacked image" in check(str(tmp_path / "folder"))[0]
    (tmp_path / "folder" / "bin").mkdir()
    assert check(str(tmp_path / "folder")) == ()


def test_names_are_resolved_as_determined_does(tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name:1").write_bytes(b"")
    assert resolve_image("org/name:1", str(tmp_path)) == str(tmp_path / "org/name:1")
    assert resolve_image("org/name:1", str(tmp_path), fresh=True) == "docker://org/name:1"
    assert resolve_image("org/name@sha256:0a1b", str(tmp_path)) == "docker://org/name@sha256:0a1b"
    assert resolve_image("org/name:2", str(tmp_path)) == "docker://org/name:2"
    assert resolve_image("/a/b.sif", str(tmp_path)) == "/a/b.sif"
    assert resolve_image("oras://x", None) == "oras://x"


def test_an_unknown_runtime_names_those_there_are() -> None:
    with pytest.raises(
        UnknownRuntime,
        match=r"Did you mean 'podman'\? Installed: apptainer, charliecloud, docker, enroot, none, podman, pyxis, sing",
    ):
        container_runtime("podmann")


@pytest.fixture
def job_folder(slurm_cluster: Cluster) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=slurm_cluster.layout.job_root) as folder:
        path = Path(folder) / "it's a $job, really:1"
        path.mkdir()
        yield path


@pytest.mark.apptainer
def test_real_container_sees_only_what_job_was_given(
    job_folder: Path, apptainer_command: Path, python_image: Path
) -> None:
    assert container_runtime("apptainer").check(str(python_image)) == ()
    data = job_folder / "data,with:odd name"
    data.mkdir()
    (data / "hello").write_text("x")
    for name, file in programs.runtime(TELLS).items():
        (job_folder / name).write_bytes(file.content)
    scratch = job_folder.parent / "scratch"
    scratch.mkdir()
    evil = "$(touch /tmp/evaluated) `id` \"'; exit 9"
    start = ContainerStart(
        job_folder=job_folder,
        image=str(python_image),
        binds=[
            Bind(str(data), "/mnt/data", read_only=True),
            Bind(str(data), "/run/determined/workdir/deep er/data", read_only=True),
            Bind(str(data / "hello"), "/run/determined/workdir/deep er/one file"),
        ],
        variables={"LITERAL": evil},
        scratch=[str(job_folder), str(scratch)],  # the first has separators of Apptainer's in its name
    )
    (job_folder / "start.sh").write_text(container_runtime("apptainer", str(apptainer_command)).start_script(start))
    subprocess.run(["chown", "-R", "tmalice", str(job_folder.parent)], check=True)
    environment = {"SLURM_JOB_ID": "12", "CUDA_VISIBLE_DEVICES": "0,1", "SECRET_OF_THE_NODE": "x"}
    done = run_as("tmalice", ["bash", str(job_folder / "start.sh")], environment=environment)
    assert done.returncode == 5, done.stderr
    assert done.stderr == ""
    facts = json.loads((job_folder / "facts.json").read_text())
    inside = facts["environment"]
    assert inside["LITERAL"] == evil
    assert inside["SLURM_JOB_ID"] == "12"
    assert inside["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "SECRET_OF_THE_NODE" not in inside
    assert facts["cwd"] == str(job_folder)
    assert facts["home"] == []
    assert facts["tmp"] == []
    assert facts["seen"] == ["/mnt/data/hello"]
    assert facts["below"] == ["data/hello", "one file"]
    assert facts["root_writable"] is False
    assert not list(scratch.iterdir()), "the private folder stayed behind"
