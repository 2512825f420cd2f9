"""A file is replaced in one step, or left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.files import replace_file


@pytest.mark.parametrize("content", ["né", "né".encode(), [b"n", "é".encode()]])
def test_the_new_file_has_all_of_its_content_and_its_mode(tmp_path: Path, content: str | bytes | list[bytes]) -> None:
    path = tmp_path / "file"
    path.write_text("old, and longer than the new one")
    path.chmod(0o600)
    with path.open() as reader:
        status = replace_file(path, content, 0o644)
        assert reader.read() == "old, and longer than the new one"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == ("né".encode(), 0o644)
    assert status.st_ino == path.stat().st_ino
    replace_file(path, "secret")
    assert path.stat().st_mode & 0o777 == 0o600


def test_failed_write_keeps_old_file_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        replace_file(path, broken())
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "link"
    target.write_text("somebody's")
    path.symlink_to(target)
    replace_file(path, "ours")
    assert (target.read_text(), path.read_text(), path.is_symlink()) == ("somebody's", "ours", False)
