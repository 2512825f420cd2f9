"""The site's folder of images: `trainmaster image` and its failures."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import packages
from tests.support.cluster.slurm import apptainer_command, python_image
from tests.support.cluster.users import run_as
from tests.support.docker.engine import IMAGE, DockerEngine, batch_engine
from trainmaster.cli import admin
from trainmaster.containers import container_runtime
from trainmaster.containers.cache import RECIPES, ImageCache, ImageError, Tools, builtin_recipes
from trainmaster.containers.images import BadName, check_name

__all__ = ["apptainer_command", "batch_engine", "python_image"]

DAY = 86_400
USER = "tmalice"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "images"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def squashfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small image."""
    try:
        packages.install(packages.CONTAINERS)
    except packages.Unavailable as reason:
        pytest.skip(f"no mksquashfs: {reason}")
    folder = tmp_path_factory.mktemp("squashfs")
    (folder / "tree").mkdir()
    (folder / "tree" / "file").write_text("x")
    made = folder / "image.sqsh"
    subprocess.run(["mksquashfs", str(folder / "tree"), str(made), "-quiet"], check=True, capture_output=True)
    return made


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and ".locks" not in path.parts}


@pytest.mark.parametrize("name", ["pytorch:2", "org/name:tag", "reg.example.org:5000/a/b@sha256:0a1b", "a_b/c-d.sqsh"])
def test_names_of_images(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "/abs", "a/", "a//b", "../a", "a/../b", "a/..", "-rf", ".locks/x", "a\nb", "a b", "a.sha256", "x" * 201],
)
def test_invalid_image_names_are_rejected(name: str, root: Path) -> None:
    with pytest.raises(BadName):
        check_name(name)
    with pytest.raises(ImageError, match="is not an image name"):
        ImageCache(root).path(name)


def test_added_image_is_resolved_by_its_name(root: Path, squashfs: Path) -> None:
    cache = ImageCache(root)
    assert cache.add("org/name:1", squashfs)
    assert not cache.add("org/name:1", squashfs), "it was made twice"
    (image,) = cache.images()
    assert (image.name, image.size) == ("org/name:1", squashfs.stat().st_size)
    assert everything(root) == {"org/name:1", "org/name:1.sha256"}
    checked = subprocess.run(["sha256sum", "-c", "name:1.sha256"], cwd=root / "org", capture_output=True, check=False)
    assert checked.returncode == 0, "the checksum is not in sha256sum's form"
    for runtime in ("apptainer", "singularity", "enroot", "pyxis", "charliecloud"):
        resolved = container_runtime(runtime).resolve("org/name:1", str(root))
        assert resolved == str(root / "org/name:1")
        assert container_runtime(runtime).check(resolved) == ()


def test_check_reports_changed_images(root: Path, squashfs: Path) -> None:
    cache = ImageCache(root)
    cache.add("good", squashfs)
    cache.add("bad", squashfs)
    cache.add("bare", squashfs)
    assert list(cache.complaints()) == []
    with (root / "bad").open("ab") as file:
        file.write(b"x")
    (root / "bare.sha256").unlink()
    assert [complaint.partition(":")[0] for complaint in cache.complaints()] == ["bad", "bare"]
    assert admin.main(["image", "list", "--root", str(root), "--check"]) == 1


@pytest.mark.parametrize("content", [b"no image", b""])
def test_file_that_is_no_image_is_refused(root: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    for path in (file, tmp_path / "missing", tmp_path):
        with pytest.raises(ImageError, match="is neither a file in SIF or squashfs format"):
            ImageCache(root).add("name", path)
    assert everything(root) == set()


def test_failed_build_keeps_existing_image(root: Path, squashfs: Path, tmp_path: Path) -> None:
    tool = tmp_path / "apptainer"
    tool.write_text(
        '#!/bin/sh\nprintf half >"$3"\necho "INFO: x"\necho "\x1b[31mFATAL:\x1b[0m no such base" >&2\nexit 255\n'
    )
    tool.chmod(0o755)
    cache = ImageCache(root, Tools(str(tool)))
    cache.add("name", squashfs)
    before = (root / "name").read_bytes()
    with pytest.raises(ImageError, match=r"^apptainer build failed: FATAL: no such base\.$"):
        cache.pull("name", "docker://org/name", replace=True)
    assert everything(root) == {"name", "name.sha256"}
    assert (root / "name").read_bytes() == before
    assert list(cache.complaints()) == []


def test_a_program_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(ImageError, match="/nowhere/apptainer cannot be run: No such file"):
        ImageCache(root, Tools("/nowhere/apptainer")).pull("name", "docker://name")
    assert everything(root) == set()


@pytest.mark.parametrize("source", ["name", "file:///etc/passwd", "docker://a\nb", "instance://x", "--help"])
def test_only_sources_are_pulled(root: Path, source: str) -> None:
    with pytest.raises(ImageError, match="is not a source"):
        ImageCache(root).pull("name", source)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with hardly any room."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], check=False).returncode:
        pytest.skip("not root: no small file system can be mounted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_nothing_behind(small: Path, squashfs: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(squashfs.read_bytes() + bytes(2**20))
    with pytest.raises(ImageError, match="no space left on the device"):
        ImageCache(small).add("org/name", large)
    assert everything(small) == set()


def test_next_build_removes_draft_of_killed_build(root: Path, squashfs: Path) -> None:
    (root / ".name.draft-123").write_bytes(b"half")
    assert ImageCache(root).images() == []
    ImageCache(root).add("name", squashfs)
    assert everything(root) == {"name", "name.sha256"}
    (root / "org").mkdir()
    (root / "org" / ".other.draft-123").write_bytes(b"half")
    assert ImageCache(root).prune(older_than=DAY) == []
    assert everything(root) == {"name", "name.sha256"}


def test_prune_removes_unused_images(root: Path, squashfs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ImageCache(root)
    now = time.time()
    for name, made, read in (("a/old", 100, 1), ("a/dusty", 100, 50), ("b/new", 2, 2)):
        cache.add(name, squashfs)
        os.utime(root / name, (now - read * DAY, now - made * DAY))
    words = ["image", "prune", "--root", str(root)]
    assert admin.main(words) == 1
    assert [image.name for image in cache.prune(unused_for=30 * DAY, dry_run=True)] == ["a/dusty"]
    assert len(cache.images()) == 3
    assert admin.main([*words, "--unused-for", "30"]) == 0
    assert "removed a/dusty" in capsys.readouterr().out
    assert everything(root) == {"a/old", "a/old.sha256", "b/new", "b/new.sha256"}
    assert [image.name for image in cache.prune(older_than=30 * DAY)] == ["a/old"]
    assert not (root / "a").exists()


def test_the_configuration_names_the_folder(
    root: Path, squashfs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "master.yaml"
    config.write_text(f"resource_manager: {{type: slurm, apptainer_image_root: {root}}}\n")
    assert admin.main(["image", "add", "--config", str(config), "org/name:1", str(squashfs)]) == 0
    assert admin.main(["image", "list", "--config", str(config), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert shown["name"] == "org/name:1"
    config.write_text("resource_manager: {type: local}\n")
    assert admin.main(["image", "list", "--config", str(config)]) == 1
    assert "set apptainer_image_root" in capsys.readouterr().err


def as_user(root: Path, apptainer: Path, *words: str, docker: str = "") -> subprocess.Popen[str]:
    """`trainmaster image` of an ordinary user."""
    source = Path(admin.__file__).parents[2]
    command = [sys.executable, "-m", "trainmaster.cli.admin", "image", words[0], "--root", str(root), *words[1:]]
    shell = f'export PATH={apptainer.parent}:$PATH PYTHONPATH={source} DOCKER_HOST={docker}; exec "$@"'
    return subprocess.Popen(
        ["runuser", "-u", USER, "--", "sh", "-c", shell, "sh", *command],
        cwd="/",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def shared(apptainer_command: Path) -> Iterator[Path]:
    """An ordinary user's folder of images."""
    made = Path(run_as(USER, ["mktemp", "-d", "-p", "/var/tmp"]).stdout.strip())
    source = Path(admin.__file__).parents[2]
    if run_as(USER, ["test", "-r", str(source / "trainmaster")]).returncode != 0:
        pytest.skip(f"{USER} cannot read {source}")
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


@pytest.mark.apptainer
@pytest.mark.slow
def test_a_recipe_is_built_once_however_many_ask(shared: Path, apptainer_command: Path, python_image: Path) -> None:
    """From a local base, as on a cluster without internet."""
    arguments = ["BOOTSTRAP=localimage", f"BASE={python_image}", "PACKAGES=none"]
    words = ["build", "site/python:cpu", "cpu.def", *(f"--build-arg={argument}" for argument in arguments)]
    both = [as_user(shared, apptainer_command, *words) for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "".join(said).count("Build complete") == 1
    assert sorted(text.splitlines()[-1] for text in said) == [
        "site/python:cpu is there.",
        "site/python:cpu was there already; --replace rebuilds it.",
    ]
    assert everything(shared) == {"site/python:cpu", "site/python:cpu.sha256"}
    done = run_as(
        USER, [str(apptainer_command), "exec", str(shared / "site/python:cpu"), "python3", "-c", "print(6 * 7)"]
    )
    assert done.stdout == "42\n", done.stderr


@pytest.mark.apptainer
def test_an_archive_of_docker_becomes_an_image(shared: Path, apptainer_command: Path) -> None:
    archive = shared / "saved.tar"
    _docker_archive(archive)
    process = as_user(shared, apptainer_command, "add", "org/saved:1", str(archive))
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    assert everything(shared) == {"org/saved:1", "org/saved:1.sha256", "saved.tar"}


def _docker_archive(path: Path) -> None:
    """What `docker save` writes of an image that holds one file."""

    def file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        archive.addfile(info, io.BytesIO(content))

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as layer:
        file(layer, "etc/motd", b"hello\n")
    content = data.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    with tarfile.open(path, "w") as archive:
        file(archive, "layer.tar", content)
        file(archive, name, config)
        manifest = [{"Config": name, "RepoTags": ["org/saved:1"], "Layers": ["layer.tar"]}]
        file(archive, "manifest.json", json.dumps(manifest).encode())


@pytest.mark.apptainer
@pytest.mark.docker
@pytest.mark.slow
def test_a_dockerfile_becomes_an_image(shared: Path, apptainer_command: Path, batch_engine: DockerEngine) -> None:
    folder = shared / ".recipe"
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY word /etc/word\nENV LC_ALL=C.UTF-8\n")
    (folder / "word").write_text("hello\n")
    words = ["build", "org/made:1", str(folder / "Dockerfile"), f"--build-arg=BASE={IMAGE}"]
    process = as_user(shared, apptainer_command, *words, docker=batch_engine.address)
    said = process.communicate(timeout=400)[0]
    assert process.returncode == 0, said
    assert {"org/made:1", "org/made:1.sha256"} == {name for name in everything(shared) if not name.startswith(".")}
    done = run_as(USER, [str(apptainer_command), "exec", str(shared / "org/made:1"), "cat", "/etc/word"])
    assert done.stdout == "hello\n", done.stderr
    client = batch_engine.client()
    left = [tag for image in client.images.list() for tag in image.tags if "trainmaster-build" in tag]
    client.close()
    assert left == []


def test_recipes_come_with_the_package() -> None:
    assert list(builtin_recipes()) == ["cpu.Dockerfile", "cpu.def", "cuda.Dockerfile", "cuda.def"]


@pytest.mark.docker
@pytest.mark.slow
def test_the_dockerfile_builds_from_a_local_base(batch_engine: DockerEngine, tmp_path: Path) -> None:
    words = ["docker", "-H", batch_engine.address, "build", "--network", "host", "--build-arg", f"BASE={IMAGE}"]
    words += ["--build-arg", "PACKAGES=none", "--tag", "trainmaster-test/built:1", "--file"]
    done = subprocess.run(
        [*words, str(RECIPES / "cpu.Dockerfile"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
