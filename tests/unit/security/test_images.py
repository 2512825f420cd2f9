"""The name of a container image cannot be used to probe which files exist."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from trainmaster.containers import container_runtime, resolve_image
from trainmaster.containers.cache import ImageCache, ImageError


def test_image_error_does_not_reveal_whether_file_exists(tmp_path: Path) -> None:
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
def test_image_name_leaving_images_folder_is_not_looked_up(tmp_path: Path, name: str) -> None:
    root = tmp_path / "images"
    (root / "org").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    assert resolve_image(name, str(root)) == f"docker://{name}"


def squashfs(folder: Path) -> Path:
    """The beginning of a file in squashfs format, which is all that its kind is known by."""
    file = folder / "given.sqsh"
    file.write_bytes(b"hsqs" + bytes(92) + b"content")
    return file


def test_a_link_in_the_place_of_a_draft_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, precious = tmp_path / "images", tmp_path / "precious"
    root.mkdir()
    precious.write_text("of the account that makes images")
    monkeypatch.setattr(os, "getpid", lambda: 4711)  # as another account foresees it
    (root / ".name.draft-4711").symlink_to(precious)
    (root / ".name.draft-4711.sha256").symlink_to(precious)
    assert ImageCache(root).add("name", squashfs(tmp_path))
    assert precious.read_text() == "of the account that makes images"
    assert sorted(path.name for path in root.iterdir()) == [".locks", "name", "name.sha256"]


@pytest.mark.parametrize("what", ["lock", "folder"])
def test_a_link_in_the_place_of_a_lock_is_not_opened(tmp_path: Path, what: str) -> None:
    root, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    (root / ".locks").mkdir(parents=True)
    elsewhere.mkdir()
    if what == "lock":
        (root / ".locks" / hashlib.sha256(b"name").hexdigest()[:32]).symlink_to(elsewhere / "made")
    else:
        (root / ".locks").rmdir()
        (root / ".locks").symlink_to(elsewhere)
    with pytest.raises(ImageError, match="could not be put into"):
        ImageCache(root).add("name", squashfs(tmp_path))
    assert list(elsewhere.iterdir()) == []
