"""A master that an ordinary user runs against the real test cluster."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import trainmaster
from tests.support.cluster.cluster import Cluster
from tests.support.master import MasterProcess, make_folder, remove_folder

USER = "tmalice"

CONFIG = """
resource_manager:
  type: slurm
  cluster_name: test
  job_storage_root: {jobs}
  container_run_type: {container}
  container_command: {apptainer}
  apptainer_image_root: {images}
  gpu_libraries: false
  poll_interval: 1
  walltime_grace: 40
  node_data: {node_data}
  environment: {{SLURM_CONF: {conf}}}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
task_container_defaults:
  image: {image}
"""


@pytest.fixture(scope="module")
def slurm_master(slurm_cluster: Cluster, apptainer_command: Path, python_image: Path) -> Iterator[MasterProcess]:
    """Jobs in Apptainer containers of the small image, which has Python and nothing else."""
    folder = make_folder()
    process = make_slurm_master(folder, slurm_cluster, apptainer_command, python_image)
    process.start()
    yield process
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


def make_slurm_master(
    folder: Path,
    cluster: Cluster,
    apptainer: Path,
    image: Path,
    *,
    container: str = "apptainer",
    user: str = USER,
    environment: Mapping[str, str] | None = None,
) -> MasterProcess:
    """Not started yet. Its jobs lie in the cluster's job folder, which all nodes see. `environment`: what else it finds
    in its own."""
    account = pwd.getpwnam(user)
    jobs = cluster.layout.job_root / folder.name
    checkpoints = folder / "checkpoints"
    images = folder / "images"  # by name
    for path in (jobs, checkpoints, images, folder / "node"):
        path.mkdir(mode=0o700)
        os.chown(path, account.pw_uid, account.pw_gid)
    # The checkout may lie where an ordinary user cannot read it.
    source = folder / "source"
    package = Path(trainmaster.__file__).parent
    shutil.copytree(package, source / "trainmaster", ignore=shutil.ignore_patterns("__pycache__"))
    text = CONFIG.format(
        jobs=jobs,
        container=container,
        apptainer=apptainer,
        conf=cluster.layout.slurm_conf,
        checkpoints=checkpoints,
        node_data=folder / "node",
        images=images,
        image=image,
    )
    found = {"PYTHONPATH": str(source), **(environment or {}), **cluster.environment}
    return MasterProcess(folder, text, user=user, environment=found)
