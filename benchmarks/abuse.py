"""Measures what others notice of bad input: one user's light requests beside all load attacks of another user at once,
and the cases of `bad_input`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from benchmarks import bad_input
from benchmarks.measure import Deadline, Sample, figure, say
from tests.support.api import people
from tests.support.api.http import Api
from tests.support.api.jobs import config, create
from tests.support.master import MasterProcess, make_folder, remove_folder
from tests.support.security.attacks import attacking
from trainmaster.client.session_calls import hashed

SECONDS = 10.0  # of each measurement
FIRST = 3.0  # seconds of an attack in which it is not known yet what its user costs
CLIENTS = 2  # of the other user
LOCAL = "resource_manager: {type: local, slots: 2, poll_interval: 0.5}\n"


def run(deadline: Deadline) -> None:
    _attacks(deadline)
    bad_input.run(deadline)


def _attacks(deadline: Deadline) -> None:
    folder = make_folder()
    master = MasterProcess(folder, LOCAL).start()
    try:
        body = {"username": "admin", "password": hashed(master.password), "isHashed": True}
        admin = Api(master.url, Api(master.url).post("/api/v1/auth/login", body).json["token"])
        other, attacker = people.person(admin).api, people.person(admin).api
        number = create(other, config(), activate=False)
        mix = [
            f"/api/v1/experiments/{number}",
            "/api/v1/experiments",
            "/api/v1/me",
            f"/api/v1/experiments/{number}/trials",
        ]
        _waits(other, mix, 2.0)  # warm
        quiet = _waits(other, mix, min(SECONDS, deadline.left / 3))
        with attacking(master.url, attacker.token) as answers:
            begun = _waits(other, mix, FIRST)
            busy = _waits(other, mix, min(SECONDS, deadline.left / 3))
        made = sum(sum(kind.values()) for kind in answers.values())
        say("abuse", "another user's light requests, nobody else there", quiet)
        say("abuse", f"the same in the first {FIRST:.0f} s of attacks of {len(answers)} kinds", begun)
        say("abuse", f"the same afterwards, beside {made:,} of them in all", busy)
        for when, sample in ((f"in the first {FIRST:.0f} s", begun), ("afterwards", busy)):
            ratios = (sample.median / quiet.median, sample.quantile(0.99) / quiet.quantile(0.99))
            told = (f"p50 {figure(ratios[0])} times", f"p99 {figure(ratios[1])} times")
            say("abuse", f"with attacks for without, {when}", *told)
    finally:
        master.clean_up()
        remove_folder(folder)


def _waits(api: Api, mix: Sequence[str], seconds: float) -> Sample:
    """How long each answer took, in ms; a pause as long as an answer of a person's page lies between two."""
    waits: list[float] = []
    until = time.monotonic() + seconds

    def ask() -> None:
        number = 0
        while time.monotonic() < until:
            began = time.perf_counter()
            answer = api.get(mix[number % len(mix)])
            waits.append((time.perf_counter() - began) * 1000)
            assert answer.status == 200, answer.content
            number += 1
            time.sleep(0.02)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Sample(waits, tails=(0.99,))
