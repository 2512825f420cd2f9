"""The examples outside of a job: one process in a container, as their READMEs say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster
from tests.support.cluster.slurm import apptainer_command, frameworks_image, horovod_image, torch_image
from tests.support.cluster.users import run_as
from tests.support.frameworks import EXAMPLES, OF_EXAMPLES, Training, image_of
from tests.support.master import make_folder, remove_folder
from tests.support.slurm.site import USER

__all__ = ["apptainer_command", "frameworks_image", "horovod_image", "torch_image"]

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]  # an image may have to be built


@pytest.fixture(scope="module")
def shared_folder() -> Iterator[Path]:
    """A folder with the package, which ordinary users can read wherever the checkout lies."""
    folder = make_folder()
    folder.chmod(0o755)
    package = Path(trainmaster.__file__).parent
    shutil.copytree(package, folder / "trainmaster", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    remove_folder(folder)


# A door does nothing outside of a job, which one example shows for all.
ALONE = [training for training in OF_EXAMPLES if not training.door or training.name == "transformers"]


@pytest.mark.parametrize("training", ALONE, ids=str)
def test_an_example_runs_outside_of_a_job(
    training: Training,
    apptainer_command: Path,
    request: pytest.FixtureRequest,
    shared_folder: Path,
) -> None:
    """As its README says: alone, with its checkpoint in the home of whoever runs it."""
    work = shared_folder / training.name
    shutil.copytree(EXAMPLES / training.name, work)
    work.chmod(0o777)
    variables = {"PYTHONPATH": str(shared_folder), "HOME": str(work), "OMP_NUM_THREADS": "1"}
    settings = ",".join(f"{name}={value}" for name, value in variables.items())
    command = [str(apptainer_command), "exec", "--cleanenv", "--contain", f"--bind={shared_folder}", f"--pwd={work}"]
    command += [f"--env={settings}", f"--home={work}", image_of(training, request), "python3", "train.py"]
    done = run_as(USER, command, timeout=240)
    assert done.returncode == 0, done.stderr
    kept = work / ".local" / "share" / "determined"
    if training.door:  # a framework's own loop, in which we do nothing here
        assert not kept.exists()
        return
    (saved,) = kept.iterdir()
    assert (saved / "metadata.json").is_file()
