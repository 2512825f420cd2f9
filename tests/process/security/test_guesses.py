"""Password guessing from the victim's own address."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import statistics
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.api.http import Api
from tests.support.api.people import PASSWORD, enter, person
from trainmaster.client import credentials
from trainmaster.client import login as logins
from trainmaster.client.errors import ClientError
from trainmaster.client.session_calls import hashed
from trainmaster.master.admission.password_checks import AT_ONCE, MOST_WAITING, PasswordChecks
from trainmaster.master.admission.password_guesses import NETWORK, PasswordGuesses
from trainmaster.master.services.errors import Busy

LOGIN = "/api/v1/auth/login"


def test_guesses_from_users_address_do_not_lock_marked_client(
    admin: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = person(admin).name
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path))
    url = logins.master_url(admin.url)
    token, mark = logins.new_session(url, victim, PASSWORD)
    credentials.remember(url, victim, token, active=True)
    credentials.remember_mark(url, victim, mark)
    answers = [enter(admin.url, victim, "wrong").status for _ in range(12)]
    assert answers[-1] == 429
    assert enter(admin.url, victim).status == 429  # the guesser may even know it by now
    assert logins.new_session(url, victim, PASSWORD)[1] == mark
    assert (tmp_path / "client-marks.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ClientError, match="wrong"):
        logins.new_session(url, victim, "wrong")


def test_a_mark_is_good_for_the_name_that_it_was_given_to(admin: Api, anonymous: Api) -> None:
    victim, mallory = person(admin), person(admin)
    mine = enter(admin.url, mallory.name).json["clientMark"]
    forged = f"{mine.partition('.')[0]}.{'0' * 64}"
    for mark in (mine, forged, "x", "."):
        for _ in range(7):
            answer = anonymous.post(LOGIN, guess(victim.name, mark))
        assert answer.status == 429, mark


def test_a_mark_does_not_let_its_holder_guess_on(admin: Api, anonymous: Api) -> None:
    victim = person(admin)
    mark = enter(admin.url, victim.name).json["clientMark"]
    assert [anonymous.post(LOGIN, guess(victim.name, mark)).status for _ in range(8)][-1] == 429


def guess(name: str, mark: str) -> dict[str, object]:
    return {"username": name, "password": hashed("wrong"), "isHashed": True, "clientMark": mark}


# -- many addresses ---------------------------------------------------------------------------------------------------


def test_guesses_from_one_network_count_together() -> None:
    """Ever new names from ever new addresses: none of the other rules sees the same thing twice."""
    ones = {
        "this machine": [f"127.{n // 250}.{n % 250}.1" for n in range(NETWORK.free + 1)],
        "a /64": [f"2001:db8:1:2::{n:x}" for n in range(1, NETWORK.free + 2)],
    }
    for where, senders in ones.items():
        guesses = PasswordGuesses(lambda: 1000.0)
        waits = [guesses.begin(f"user{n}", address) for n, address in enumerate(senders)]
        assert not any(waits), where
        assert guesses.begin("another", f"{senders[0].rpartition(senders[0][-1])[0]}7") > 0, where
        assert guesses.begin("another", "192.0.2.1") == 0
        assert guesses.begin("another", "2001:db8:1:3::1") == 0
        assert guesses.begin("victim", senders[0], "a mark of the victim's") == 0


def test_known_clients_and_other_networks_overtake_guess_flood() -> None:
    async def scene() -> list[str]:
        checks, order, go_on = PasswordChecks(), [], asyncio.Event()

        async def check(who: str, *, known: bool) -> None:
            async with checks.turn(who, known=known):
                order.append(who)
                if who == "flood":
                    await go_on.wait()

        flood = [asyncio.create_task(check("flood", known=False)) for _ in range(100)]
        while len(order) < AT_ONCE:
            await asyncio.sleep(0)
        await asyncio.wait_for(check("owner", known=True), 1)
        other = asyncio.create_task(check("other", known=False))
        await asyncio.sleep(0)
        flood[-1].cancel()
        with pytest.raises(Busy):
            await asyncio.gather(*(check("flood", known=False) for _ in range(MOST_WAITING)))
        go_on.set()
        await other
        found = list(order)
        await asyncio.gather(*flood, return_exceptions=True)
        while not checks._strangers.idle:
            await asyncio.sleep(0)
        assert not len(checks._strangers)
        return found

    order = asyncio.run(scene())
    assert order[AT_ONCE] == "owner"
    assert order.index("other") <= AT_ONCE + 3


def test_login_with_client_mark_stays_quick_under_flood(admin: Api) -> None:
    """From the master's own machine, which has as many addresses as one likes."""
    victim = person(admin).name
    mark = enter(admin.url, victim).json["clientMark"]
    address = urlsplit(admin.url)
    body = json.dumps(guess("nobody", "")).encode()
    stop = threading.Event()

    def flood(start: int) -> None:
        number = start
        while not stop.is_set():
            number += 40
            source = (f"127.{number // 250 % 250 + 1}.{number % 250}.9", 0)
            with contextlib.suppress(OSError, http.client.HTTPException):
                client = http.client.HTTPConnection(address.hostname or "", address.port, 20, source_address=source)
                sent = body.replace(b"nobody", f"nobody{number}".encode())
                client.request("POST", LOGIN, sent, {"Content-Type": "application/json"})
                client.getresponse().read()
                client.close()

    attackers = [threading.Thread(target=flood, args=(start,), daemon=True) for start in range(40)]
    for attacker in attackers:
        attacker.start()
    took = []
    try:
        for _ in range(10):
            began = time.monotonic()
            answer = admin.call("POST", LOGIN, {"username": victim, "password": hashed(PASSWORD), "isHashed": True,
                                                "clientMark": mark})  # fmt: skip
            took.append(time.monotonic() - began)
            assert answer.status == 200
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join()
    assert statistics.median(took) < 1
