"""A Docker daemon for tests, with its own socket and data root, and an image that contains Python.

    from tests.support.docker.engine import docker_engine

Images come from no registry: the small Debian that the test cluster's images are made of is imported. Moved by
``TRAINMASTER_DOCKER_RUN`` (/var/lib/trainmaster-docker), which keeps the image from one run to the next.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import docker
import pytest

from tests.support.cluster import images, packages
from tests.support.cluster.layout import USERS, Layout
from tests.support.cluster.users import ensure_users

IMAGE = "trainmaster-test/python:3.11"
START = 60.0  # seconds
QUEUE = 600.0  # seconds that another test run is waited for
PACKAGES = ("docker.io", "tini")


class DockerEngine:
    """One dockerd. Containers use the host's network; the daemon makes no bridge and touches no firewall."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.address = f"unix://{run}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._end_leftover()
        for name in ("data", "exec"):
            (self.run / name).mkdir(parents=True, exist_ok=True)
        with (self.run / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    f"--data-root={self.run}/data",
                    f"--exec-root={self.run}/exec",
                    f"--host={self.address}",
                    f"--pidfile={self.run}/docker.pid",
                    "--bridge=none",
                    "--iptables=false",
                    "--log-level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = (self.run / "dockerd.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise packages.Unavailable(f"dockerd does not start: {' '.join(last)}")
            time.sleep(0.05)

    def stop(self) -> None:
        """As a service manager does: containers are ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            self._process = None
            # dockerd leaves the network's name space of the host mounted.
            subprocess.run(["umount", str(self.run / "exec/netns/default")], capture_output=True, check=False)

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(self.address, version="auto", timeout=60)

    def containers(self) -> list[str]:
        """Names of all containers, ended ones too."""
        with _closing(self.client()) as client:
            # The richer call looks at each, and fails for one that has gone meanwhile.
            return sorted(str(one["Names"][0]).lstrip("/") for one in client.api.containers(all=True))

    def is_running(self, name: str) -> bool:
        """False for one that is not there."""
        with _closing(self.client()) as client:
            try:
                return str(client.containers.get(name).status) in ("running", "paused")
            except docker.errors.NotFound:
                return False

    def remove(self, name: str) -> None:
        """As a person does."""
        with _closing(self.client()) as client:
            client.containers.get(name).remove(force=True)

    def kill(self, name: str) -> None:
        with _closing(self.client()) as client:
            client.containers.get(name).kill()

    def limit_memory(self, name: str, size: int) -> None:
        """Bytes, swap included."""
        with _closing(self.client()) as client:
            client.containers.get(name).update(mem_limit=size, memswap_limit=size)

    def pause(self, name: str) -> None:
        with _closing(self.client()) as client:
            client.containers.get(name).pause()

    def unpause(self, name: str) -> None:
        with _closing(self.client()) as client:
            client.containers.get(name).unpause()

    def remove_everything(self) -> None:
        with _closing(self.client()) as client:
            for one in client.api.containers(all=True):
                with suppress(docker.errors.APIError):
                    client.api.remove_container(one["Id"], force=True)

    def image_id(self, name: str = IMAGE) -> str:
        with _closing(self.client()) as client:
            return str(client.images.get(name).id)

    def import_image(self, root: Path, name: str = IMAGE) -> None:
        """Make an image from a folder, unless it is there."""
        if self._has(name):
            return
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            command = [
                "docker",
                "-H",
                self.address,
                "import",
                "-c",
                "ENV PATH=/usr/local/bin:/usr/bin:/bin",
                "-",
                name,
            ]
            done = subprocess.run(command, stdin=tar.stdout, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise packages.Unavailable(f"docker import failed: {done.stderr.strip()}")

    def import_sif(self, apptainer: Path, image: Path) -> str:
        """The name of an image with the content of one of Apptainer's, which is made unless it is there."""
        # Its recipe is the tag: one that has changed is another image.
        name = f"trainmaster-test/{image.stem}:{image.with_suffix('.recipe').read_text()[:12]}"
        if not self._has(name):
            root = self.run / f"{image.stem}-root"
            shutil.rmtree(root, ignore_errors=True)
            listed = subprocess.run([str(apptainer), "sif", "list", str(image)], capture_output=True, text=True)
            found = re.search(r"\|(\d+)-\d+\s*\|FS \(Squashfs", listed.stdout)
            if found is None:
                raise packages.Unavailable(f"{image} has no file system: {listed.stderr.strip()}")
            command = ["unsquashfs", "-quiet", "-no-progress", "-offset", found[1], "-dest", str(root), str(image)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise packages.Unavailable(f"{image} cannot be unpacked: {done.stderr.strip()}")
            self.import_image(root, name)
            shutil.rmtree(root)
        return name

    def _has(self, name: str) -> bool:
        with _closing(self.client()) as client:
            return bool(client.images.list(name=name))

    def _answers(self) -> bool:
        # The SDK leaves its socket open when nobody answers, which would be a warning here.
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(START)
                probe.connect(f"{self.run}/docker.sock")
                probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in probe.recv(64)
        except OSError:
            return False

    def _end_leftover(self) -> None:
        """A test run that was killed leaves its daemon behind."""
        try:
            pid = int((self.run / "docker.pid").read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return
        if f"--data-root={self.run}/data".encode() in arguments:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + START
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.05)


@contextmanager
def _closing(client: docker.DockerClient) -> Iterator[docker.DockerClient]:
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    run.mkdir(parents=True, exist_ok=True)
    run.chmod(0o711)
    with (run / "lock").open("w") as lock:
        deadline = time.monotonic() + QUEUE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise packages.Unavailable(f"another test run uses {run}") from None
                time.sleep(0.2)
        yield


@contextmanager
def running_engine(name: str = "") -> Iterator[DockerEngine]:
    """A daemon with the image. `name`: of another one beside the first. Raises Unavailable."""
    if os.geteuid() != 0:
        raise packages.Unavailable("not root: a Docker daemon needs it")
    packages.install(PACKAGES)
    ensure_users()
    if shutil.which("dockerd") is None:
        raise packages.Unavailable("there is no dockerd on PATH")
    run = Path(os.environ.get("TRAINMASTER_DOCKER_RUN", "/var/lib/trainmaster-docker") + name)
    with _alone(run):
        engine = DockerEngine(run)
        engine.start()
        try:
            engine.import_image(images.base_system(Layout.from_environment()))
            engine.remove_everything()
            yield engine
            engine.remove_everything()
        finally:
            engine.stop()


class _Shared:
    """Every module that imports the fixture below makes one of its own of it; there is one daemon for them all."""

    def __init__(self) -> None:
        self._users = 0
        self._stack = ExitStack()
        self._engine: DockerEngine | None = None

    @contextmanager
    def __call__(self) -> Iterator[DockerEngine]:
        if self._engine is None:
            self._engine = self._stack.enter_context(running_engine())
        self._users += 1
        try:
            yield self._engine
        finally:
            self._users -= 1
            if not self._users:
                self._engine = None
                self._stack.close()


_shared = _Shared()


@pytest.fixture(scope="module")
def batch_engine() -> Iterator[DockerEngine]:
    """A daemon that an ordinary account may use, as on the nodes of a cluster whose jobs run in Docker."""
    try:
        with running_engine("-batch") as engine:
            os.chown(engine.run / "docker.sock", 0, pwd.getpwnam(USERS[0]).pw_gid)
            yield engine
    except packages.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    try:
        with _shared() as engine:
            yield engine
    except packages.Unavailable as reason:
        pytest.skip(str(reason))
