"""`det tunnel`: connects standard input and output, or a local port, to a port of a task, over a WebSocket."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainmaster.cli.session import master_url, session
from trainmaster.cli.verbs import positive
from trainmaster.client.errors import ClientError, NotLoggedIn
from trainmaster.client.tls import context_for, server_name

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

PIECE = 64 * 1024  # bytes


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: det tunnel 0d9b31f2-5e1c-4a2b-8c3d-7f6e5a4b3c2d:8265 --listener 8265"
    parser.add_argument("service", help="a task's id, or id:port for a port of its configuration's proxy_ports")
    parser.add_argument(
        "--listener", type=positive, metavar="PORT", help="listen here instead of using stdin and stdout"
    )
    parser.add_argument("--auth", action="store_true", help=argparse.SUPPRESS)  # we always authenticate
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Copy bytes both ways until either side ends. Raises ClientError."""
    if args.listener:
        _listen(args)
        return 0
    with _connected(args) as service:
        _through(service, lambda: os.read(sys.stdin.fileno(), PIECE), lambda data: _write(sys.stdout.fileno(), data))
    os._exit(0)  # a thread may still wait for stdin, and nothing can wake it


def _write(where: int, data: bytes) -> None:
    while data:
        data = data[os.write(where, data) :]


def _connected(args: argparse.Namespace) -> ClientConnection:
    """Connect to the master. Raises ClientError."""
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    try:
        token = session(args).token
    except NotLoggedIn:
        token = None  # shells need only a key
    url = master_url(args)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    secure = url.startswith("https")
    tls = context_for(url, os.environ.get("DET_MASTER_CERT_FILE") or None) if secure else None
    name = server_name(url) if secure else None
    address = f"ws{url.removeprefix('http')}/proxy/{args.service}/"
    try:
        return connect(
            address,
            additional_headers=headers,
            ssl=tls,
            server_hostname=name,
            compression=None,
            max_size=None,
            proxy=None,
        )
    except InvalidStatus as error:
        import json

        try:
            message = str(json.loads(error.response.body or b"")["message"])
        except (ValueError, KeyError, TypeError):
            message = f"The master answers {error.response.status_code}."
        raise ClientError(message) from None
    except (OSError, WebSocketException) as error:
        raise ClientError(f"The master at {url} cannot be reached: {error}.") from None


def _through(service: ClientConnection, read: Callable[[], bytes], write: Callable[[bytes], None]) -> None:
    from websockets.exceptions import ConnectionClosed

    def up() -> None:
        try:
            while data := read():
                service.send(data)
        except (OSError, ConnectionClosed):
            pass
        service.close()

    threading.Thread(target=up, daemon=True).start()
    try:
        for data in service:
            write(data.encode() if isinstance(data, str) else data)
    except (OSError, ConnectionClosed):
        pass


def _listen(args: argparse.Namespace) -> None:
    with socket.create_server(("127.0.0.1", args.listener)) as server:
        print(f"listening on 127.0.0.1:{args.listener}", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=(args, connection), daemon=True).start()


def _serve(args: argparse.Namespace, connection: socket.socket) -> None:
    with connection:
        try:
            with _connected(args) as service:
                _through(service, lambda: connection.recv(PIECE), connection.sendall)
        except ClientError as error:
            print(f"det: {error}", file=sys.stderr, flush=True)
