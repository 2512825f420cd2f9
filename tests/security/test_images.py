"""The name of a container image cannot be used to probe which files exist."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.containers import container_runtime, resolve_image


def test_a_path_that_is_no_image_is_answered_the_same_whatever_is_there(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("secret")
    (tmp_path / "closed").write_text("secret")
    (tmp_path / "closed").chmod(0)
    (tmp_path / "folder").mkdir()
    (tmp_path / "round").symlink_to("round")
    os.mkfifo(tmp_path / "pipe")
    names = ("text", "closed", "folder", "round", "pipe", "absent", "text/below", "absent/below", "n" * 300)
    said = {
        container_runtime("apptainer").check(str(tmp_path / name))[0].replace(f"/{name} ", "/NAME ") for name in names
    }
    assert len(said) == 1


@pytest.mark.parametrize("name", ["../secret", "org/../../secret", ".."])
def test_a_name_that_leaves_the_folder_of_images_is_not_looked_for(tmp_path: Path, name: str) -> None:
    root = tmp_path / "images"
    (root / "org").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    assert resolve_image(name, str(root)) == f"docker://{name}"
