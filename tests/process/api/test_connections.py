"""The port that the master listens on."""

from __future__ import annotations

import socket
from pathlib import Path

from trainmaster.master import main


def test_answers_leave_at_once() -> None:
    """Without TCP_NODELAY each answer waits 40 ms for the client's delayed acknowledgement."""
    listener = main._bind(main.MasterAddress(Path("/"), "127.0.0.1", 0))
    with listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
