"""An image registry that requires a login: Debian's docker-registry on its own port, with one account."""

from __future__ import annotations

import io
import secrets
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt

from tests.support.cluster import packages
from tests.support.docker.engine import DockerEngine
from tests.support.master import free_port

START = 60.0  # seconds
USER = "ada"


class Registry:
    """`image` is a name in it that only `password` opens."""

    def __init__(self, engine: DockerEngine, folder: Path) -> None:
        packages.install(("docker-registry",))
        self._engine, self._folder = engine, folder
        self.password = secrets.token_urlsafe(12)
        self.address = f"127.0.0.1:{free_port()}"
        self.image = f"{self.address}/private/shell:1"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def login(self) -> dict[str, str]:
        return {"username": USER, "password": self.password}

    def start(self) -> None:
        salt = bcrypt.gensalt(rounds=4, prefix=b"2a")
        hashed = bcrypt.hashpw(self.password.encode(), salt).decode()
        (self._folder / "accounts").write_text(f"{USER}:{hashed}\n")
        config = self._folder / "registry.yaml"
        config.write_text(
            f"version: 0.1\nlog: {{level: warn}}\nhttp: {{addr: '{self.address}'}}\n"
            f"storage: {{filesystem: {{rootdirectory: {self._folder}/images}}}}\n"
            f"auth: {{htpasswd: {{realm: tests, path: {self._folder}/accounts}}}}\n"
        )
        with (self._folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
        deadline = time.monotonic() + START
        while self._status() != 401:
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = (self._folder / "registry.log").read_text().strip().splitlines()[-1:]
                raise packages.Unavailable(f"docker-registry does not start: {' '.join(last)}")
            time.sleep(0.05)

    def _status(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{self.address}/v2/", timeout=START):
                return 200
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def fill(self) -> None:
        """Put an image there that holds nothing: a job brings its programs as mounts. The daemon keeps none of it."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for name in ("usr", "lib", "lib64"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(folder)
        client = self._engine.client()
        try:
            name = self.image.rpartition(":")[0]
            client.api.import_image_from_data(data.getvalue(), repository=name, tag="1", changes=["ENV PATH=/usr/bin"])
            said = client.api.push(name, tag="1", auth_config=self.login, stream=True, decode=True)
            assert not [line for line in said if "error" in line]
            self.remove_image()
        finally:
            client.close()

    def remove_image(self) -> None:
        """From the daemon, so that it must be fetched again."""
        client = self._engine.client()
        try:
            client.api.remove_image(self.image, force=True)
        finally:
            client.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START)


@contextmanager
def running_registry(engine: DockerEngine, folder: Path) -> Iterator[Registry]:
    """With the image in it. Raises Unavailable."""
    registry = Registry(engine, folder)
    try:
        registry.start()
        registry.fill()
        yield registry
    finally:
        registry.stop()
