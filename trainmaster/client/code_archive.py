"""Unpacks the training code of an experiment, which its owner's colleagues have written."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from trainmaster.client.errors import ClientError


def unpack(archive: bytes, target: Path) -> None:
    """Unpack files and folders of a gzipped tar, and nothing outside of `target`.

    Raises:
        ClientError: It has another kind of entry, or one with a path that leads out of the folder.
        OSError: The files cannot be written.
    """
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = Path(member.name)
            if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                raise ClientError(f"The experiment's files contain {member.name!r}, which is not unpacked.")
            tar.extract(member, target, set_attrs=False)
