"""What the launchers of notebooks, shells and TensorBoards make of their arguments and surroundings."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainmaster.launchers import notebook, service, shell, tensorboard
from trainmaster.runtime.announce import address_for


@pytest.mark.parametrize(
    ("kernels", "terminals", "uses"),
    [
        ([], [], (False, False, False)),
        ([], [{"name": "1"}], (True, False, False)),
        ([{"connections": 0, "execution_state": "idle"}], [], (True, False, False)),
        ([{"connections": 0, "execution_state": "busy"}], [], (True, False, True)),
        ([{"connections": 2, "execution_state": "idle"}], [], (True, True, True)),
    ],
)
def test_when_a_notebook_is_used(kernels: Any, terminals: Any, uses: Any) -> None:
    assert tuple(notebook.in_use(kernels, terminals, kind) for kind in notebook.KINDS) == uses


class Jupyter(BaseHTTPRequestHandler):
    """Lists one kernel for who has the token."""

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "token secret" and self.path == "/proxy/x/api/kernels"
        body = b'[{"connections": 2}, "odd"]' if allowed else b"[{}]"
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        return


def test_notebook_asks_jupyter_for_running_kernels() -> None:
    with HTTPServer(("127.0.0.1", 0), Jupyter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = ("127.0.0.1", server.server_port)
        assert notebook.list_running(*place, "/proxy/x/api/kernels", "secret") == [{"connections": 2}]
        assert notebook.list_running(*place, "/proxy/x/api/kernels", "wrong") == []
        server.shutdown()
        thread.join(60)
    assert notebook.list_running(*place, "/proxy/x/api/kernels", "secret") == []


def test_the_secret_of_a_notebook_is_no_argument() -> None:
    command = notebook.command("10.0.0.1", 1234, "/proxy/x/")
    assert command[:2] == ["jupyter", "lab"]
    assert "--ServerApp.base_url=/proxy/x/" in command
    assert not any("token" in word for word in command)


def test_tensorboard_links_given_folders(tmp_path: Path) -> None:
    shows, rest = tensorboard.parse(
        ["--show=exp_1=/a=b/trial", "--show=exp_2=/c", "--", "--samples_per_plugin=images=9"]
    )
    assert (shows, rest) == ({"exp_1": "/a=b/trial", "exp_2": "/c"}, ["--samples_per_plugin=images=9"])
    tensorboard.gather(shows, tmp_path / "logs")
    assert os.readlink(tmp_path / "logs" / "exp_1") == "/a=b/trial"
    with pytest.raises(SystemExit, match="is not --show=NAME=FOLDER"):
        tensorboard.parse(["--logdir", "/"])


def test_shell_command_gets_environment_and_folder_of_job(tmp_path: Path) -> None:
    odd = {"PLAIN": "x", "ODD": "a 'b' \"c\" $d `e` \n f", "no name": "x", "TERM": "mine", "PATH": os.environ["PATH"]}
    script = tmp_path / "enter.sh"
    script.write_text(shell.entrance(odd, str(tmp_path)))
    asked = 'printf %s "$ODD"; printf "|%s|%s" "$TERM" "$PWD"'
    done = subprocess.run(
        ["sh", str(script)],
        env={"SSH_ORIGINAL_COMMAND": asked, "TERM": "theirs"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{odd['ODD']}|theirs|{tmp_path}"


def test_an_ssh_server_that_takes_one_key_and_nothing_else(tmp_path: Path) -> None:
    found = shell.configuration(tmp_path, "127.0.0.1", 2222)
    assert {"ListenAddress 127.0.0.1", "Port 2222", "UsePAM no", "PasswordAuthentication no"} <= set(found)
    sshd = shell.find_sshd("")
    if sshd is None:
        pytest.skip("there is no sshd on this machine")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "host_key")], check=True)
    config = tmp_path / "sshd_config"
    config.write_text("\n".join(found) + "\n")
    if os.geteuid() == 0:
        shell.prepare_for_root()
    subprocess.run([sshd, "-t", "-f", str(config)], check=True)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://localhost:8080", "127.0.0.1"),
        ("http://[::1]:8080", "::1"),
        ("https://login1:8080/base", "10.0.0.7"),
    ],
)
def test_where_a_service_is_reached(url: str, address: str) -> None:
    assert address_for(url, "10.0.0.7") == address


def test_taken_port_is_given_up_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command finds its port taken, the second one stands."""
    ours = service.Service.__new__(service.Service)
    ours.address = "127.0.0.1"
    told = []
    monkeypatch.setattr(ours, "_announce", lambda: told.append(ours.port), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = ours.port = taken.getsockname()[1]
        tried = []

        def command() -> Any:
            tried.append(ours.port)
            if ours.port == first:
                return ["false"]  # at once, on the slowest machine
            code = "import socket, sys, time\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
            code += "s.accept()\ntime.sleep(3)"  # longer than is looked whether it stands
            return [sys.executable, "-c", code, str(ours.port)]

        monkeypatch.setattr(service, "_LOOK", 1.5)
        assert ours.run(command) == 0
    assert tried[0] == first
    assert len(tried) == 2
    assert told == [tried[1]]
