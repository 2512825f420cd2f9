"""Builds, pulls, adds, checks and removes images in the site's folder of images (layout: `containers.images`).

An image is made once, however many processes ask for it at the same time: the others wait for a lock on the shared
folder, and then find it. It is written under a temporary name and renamed when it is complete, so that a job sees a
whole image or none. `NAME.sha256` beside it has its checksum in the form of sha256sum(1).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.containers.images import BadName, check_name, kind_of, look_at

RECIPES = Path(__file__).parent / "recipes"
SUM = ".sha256"
LOCKS = ".locks"
SOURCES = ("docker://", "oras://", "library://", "docker-daemon:", "docker-archive:", "oci-archive:", "oci:")
_QUOTED = 30  # lines of a failed program's output that the error repeats
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_TELLING = re.compile(r"(FATAL|ERROR|Error)\b")
Say = Callable[[str], None]


class ImageError(Exception):
    """The operation failed; the message is a sentence that says why. Nothing of it was kept."""


@dataclass(frozen=True)
class CachedImage:
    """An image of the folder. Times are seconds since the epoch; `size` is bytes; `checksum` is None where none is
    recorded."""

    name: str
    path: Path
    size: int
    made_at: float
    read_at: float
    checksum: str | None


@dataclass(frozen=True)
class Tools:
    """Programs that make images."""

    apptainer: str = "apptainer"
    docker: str = "docker"


class ImageCache:
    """The images below one folder."""

    def __init__(self, root: Path, tools: Tools = Tools(), say: Say = print) -> None:
        """`say` is called with progress messages. Raises ImageError."""
        self._root, self._tools, self._say = root.absolute(), tools, say
        if not self._root.is_dir():
            raise ImageError(f"{self._root} is not a folder: make it, on a file system that all nodes see.")

    def path(self, name: str) -> Path:
        """Return the path of the image called `name`. Raises ImageError."""
        try:
            return self._root / check_name(name)
        except BadName as error:
            raise ImageError(str(error)) from None

    # -- reading ---------------------------------------------------------------------------------------

    def images(self) -> list[CachedImage]:
        """List all images, sorted by name."""
        return sorted(self._found(), key=lambda image: image.name)

    def _found(self) -> Iterator[CachedImage]:
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                path = Path(folder, name)
                if name.startswith(".") or name.endswith(SUM) or kind_of(str(path)) is None:
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    status = path.stat()
                    yield CachedImage(
                        str(path.relative_to(self._root)),
                        path,
                        status.st_size,
                        status.st_mtime,
                        max(status.st_atime, status.st_mtime),
                        _recorded(path),
                    )

    @property
    def knows_reading(self) -> bool:
        """Whether the file system records access times."""
        return not os.statvfs(self._root).f_flag & os.ST_NOATIME

    def complaints(self) -> Iterator[str]:
        """Yield a sentence for each image that differs from its checksum, or has none. Reads all images."""
        for image in self.images():
            if image.checksum is None:
                yield f"{image.name}: no checksum is recorded; add it again with --replace."
            elif _sum(image.path) != image.checksum:
                yield f"{image.name}: the file has changed since it was put there; build or add again with --replace."

    # -- making ----------------------------------------------------------------------------------------

    def build(self, name: str, recipe: Path, arguments: Mapping[str, str], *, replace: bool = False) -> bool:
        """Build from a Dockerfile (recognised by its name) or an Apptainer definition; `arguments` are build arguments.
        Returns False when the image exists already. Raises ImageError."""
        if not recipe.is_file():
            raise ImageError(f"There is no recipe {recipe}.")
        for key, value in arguments.items():
            if not key.isidentifier() or not value.isprintable():
                raise ImageError(f"--build-arg {key!r}: an argument is NAME=VALUE, in one line.")
        if "dockerfile" not in recipe.name.lower():
            given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
            return self._make(
                name, replace, lambda draft: self._apptainer("build", *given, "--force", str(draft), str(recipe))
            )

        def fill(draft: Path) -> None:
            tag = f"trainmaster-build:{os.getpid()}-{time.time_ns()}"
            given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
            words = ["build", *given, "--tag", tag, "--file", str(recipe), str(recipe.parent)]
            self._run(self._tools.docker, *words)
            try:
                # Not beside the draft: a colon in the path would end it.
                with tempfile.TemporaryDirectory(dir=draft.parent.parent, prefix=".archive-") as folder:
                    self._run(self._tools.docker, "save", "--output", f"{folder}/image.tar", tag)
                    self._apptainer("build", "--force", str(draft), f"docker-archive:{folder}/image.tar")
            finally:
                subprocess.run([self._tools.docker, "rmi", tag], capture_output=True, check=False)

        return self._make(name, replace, fill)

    def pull(self, name: str, source: str, *, replace: bool = False) -> bool:
        """Pull from a registry, the Docker daemon or a local archive. Returns False when the image exists already.
        Raises ImageError."""
        if not source.startswith(SOURCES) or not source.isprintable():
            raise ImageError(f"{source!r:.200} is not a source: a source begins with one of {', '.join(SOURCES)}.")
        return self._make(name, replace, lambda draft: self._apptainer("build", "--force", str(draft), source))

    def add(self, name: str, file: Path, *, replace: bool = False) -> bool:
        """Add a SIF or squashfs file as it is, or an archive of `docker save`. Returns False when the image exists
        already. Raises ImageError."""
        kind = _kind_of_file(file)
        if kind in ("docker-archive", "oci-archive"):
            return self.pull(name, f"{kind}:{file.absolute()}", replace=replace)
        return self._make(name, replace, lambda draft: _copy(file, draft))

    def _make(self, name: str, replace: bool, fill: Callable[[Path], None]) -> bool:
        path = self.path(name)
        try:
            with self._alone(name):
                if path.is_dir():
                    raise ImageError(f"{name} is a folder in {self._root}; choose another name.")
                if path.exists() and not replace:
                    return False
                path.parent.mkdir(parents=True, exist_ok=True)
                for leftover in path.parent.glob(f".{path.name}.draft-*"):  # of a build that was killed
                    _remove(leftover)
                # A folder of this account alone: others who may write beside it cannot put links in it.
                with tempfile.TemporaryDirectory(prefix=f".{path.name}.draft-", dir=path.parent) as private:
                    draft = Path(private) / "image"
                    fill(draft)
                    self._place(draft, path)
        except OSError as error:
            raise ImageError(f"{name} could not be put into {self._root}: {_why(error)}.") from None
        return True

    def _place(self, draft: Path, path: Path) -> None:
        if kind_of(str(draft)) is None:
            raise ImageError(f"The file made for {path.name} is not an image in SIF or squashfs format.")
        draft.chmod(0o644)
        _durable(draft)
        noted = draft.with_name(f"{draft.name}{SUM}")
        recorded = path.with_name(path.name + SUM)
        try:
            noted.write_text(f"{_sum(draft)}  {path.name}\n")
            noted.chmod(0o644)
            # In this order a checksum never lies beside an image that it does not belong to.
            recorded.unlink(missing_ok=True)
            draft.replace(path)
            noted.replace(recorded)
        finally:
            noted.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self, name: str, *, wait: bool = True) -> Iterator[None]:
        """Hold the lock of this image, against processes on all machines. Raises OSError."""
        with self._lock_file(name) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise
                self._say(f"{name} is being made by another process; waiting for it to finish.")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        """Open an image's lock file through no link, and yield its descriptor. Raises OSError."""
        folder = self._root / LOCKS
        folder.mkdir(exist_ok=True)
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            called = hashlib.sha256(name.encode()).hexdigest()[:32]
            lock = os.open(called, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=inside)
        finally:
            os.close(inside)
        try:
            yield lock
        finally:
            os.close(lock)

    # -- removing --------------------------------------------------------------------------------------

    def prune(
        self, *, unused_for: float | None = None, older_than: float | None = None, dry_run: bool = False
    ) -> list[CachedImage]:
        """Remove images that were not read for `unused_for` seconds, or were made more than `older_than` seconds ago.
        Returns the removed ones. Raises ImageError."""
        if unused_for is not None and not self.knows_reading:
            raise ImageError(f"{self._root} lies on a file system without access times (noatime): use --older-than.")
        now, gone = time.time(), []
        if not dry_run:
            self._clear_drafts()
        for image in self.images():
            unused = unused_for is not None and image.read_at < now - unused_for
            old = older_than is not None and image.made_at < now - older_than
            if not unused and not old:
                continue
            if not dry_run:
                try:
                    with self._alone(image.name):
                        image.path.unlink(missing_ok=True)
                        image.path.with_name(image.path.name + SUM).unlink(missing_ok=True)
                        for folder in image.path.relative_to(self._root).parents:
                            with contextlib.suppress(OSError):  # it holds other images
                                (self._root / folder).rmdir() if folder.name else None
                except OSError as error:
                    raise ImageError(f"{image.name} could not be removed: {_why(error)}.") from None
            gone.append(image)
        return gone

    def _clear_drafts(self) -> None:
        """Remove drafts that killed builds left, except those of images whose lock is held."""
        for draft in self._root.rglob(".*.draft-*"):
            name = draft.relative_to(self._root).with_name(draft.name[1:].rpartition(".draft-")[0])
            with contextlib.suppress(OSError), self._alone(str(name), wait=False):
                _remove(draft)

    # -- programs --------------------------------------------------------------------------------------

    def _apptainer(self, *words: str) -> None:
        self._run(self._tools.apptainer, *words)

    def _run(self, *words: str) -> None:
        """Run a program and pass its output on. Raises ImageError."""
        last: deque[str] = deque(maxlen=_QUOTED)
        try:
            with subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", file=sys.stderr)
                    if plain := _ESCAPES.sub("", line).strip():
                        last.append("".join(c if c.isprintable() else " " for c in plain))
        except OSError as error:
            raise ImageError(f"{words[0]} cannot be run: {error.strerror}. Install it, or name its path.") from None
        if process.returncode != 0:
            message = next((line for line in last if _TELLING.match(line)), " ".join([*last][-2:]))
            raise ImageError(
                f"{os.path.basename(words[0])} {words[1]} failed: {message[:600].rstrip('.') or 'it printed nothing'}."
            )


def builtin_recipe(name: str) -> Path:
    """Return the path of the packaged recipe called `name`, such as cpu.def; a path stays as it is."""
    recipe = RECIPES / name
    return recipe if "/" not in name and not name.startswith(".") and recipe.is_file() else Path(name)


def builtin_recipes() -> Sequence[str]:
    """Their names."""
    return sorted(path.name for path in RECIPES.iterdir() if path.suffix in (".def", ".Dockerfile"))


def _kind_of_file(file: Path) -> str:
    """ "image", "docker-archive" or "oci-archive". Raises ImageError."""
    if (kind := kind_of(str(file))) in ("sif", "squashfs"):
        return "image"
    try:
        if kind is None and file.is_file() and tarfile.is_tarfile(file):
            with tarfile.open(file) as archive:
                for member in archive:
                    if member.name.removeprefix("./") == "manifest.json":
                        return "docker-archive"
                    if member.name.removeprefix("./") == "oci-layout":
                        kind = "oci-archive"
            if kind:
                return kind
    except (OSError, tarfile.TarError) as error:
        raise ImageError(f"{file} cannot be read: {error}.") from None
    raise ImageError(
        f"{file} is neither a file in SIF or squashfs format nor an archive of docker save, or cannot be read."
    )


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, 2**20)


def _remove(draft: Path) -> None:
    """Remove a draft: a folder, or a file of an earlier release. A link is removed, not what it leads to."""
    if draft.is_symlink() or not draft.is_dir():
        draft.unlink()
    else:
        shutil.rmtree(draft)


def _durable(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sum(path: Path) -> str:
    with open(path, "rb", opener=look_at) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recorded(path: Path) -> str | None:
    try:
        words = path.with_name(path.name + SUM).read_text().split()
    except (OSError, UnicodeDecodeError):
        return None
    return words[0] if words and len(words[0]) == 64 else None


def _why(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the device"
    return error.strerror or str(error)
