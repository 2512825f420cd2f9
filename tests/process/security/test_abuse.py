"""All attacks of one user at the same time, while another user's search runs."""

from __future__ import annotations

import time
from pathlib import Path

from tests.process.api.conftest import log_in
from tests.support import trainings
from tests.support.api import people
from tests.support.api.http import Api
from tests.support.master import files, serving, validations, wait_ended
from tests.support.security.attacks import attacking
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport

LOCAL = "resource_manager: {type: local, slots: 4, poll_interval: 0.2}\n"
LONGEST = 15.0  # seconds that an answer may take here: some hundredths of one are usual, ever longer ones were
MEMORY = 600  # MB that the master may hold in the end; it begins with 200
ANSWERS = {  # of all others 400
    "brackets": {413, 0},  # 0: it was refused and closed while it still came
    "slow patterns": {200, 408},
    "half requests": {0},
}
REFUSED = {429, 503}  # too many wait, or too many connections are open: a sentence each


def test_simultaneous_attacks_leave_another_users_search_alone() -> None:
    with serving(LOCAL) as process:
        admin = Api(process.url, log_in(process, "admin"))
        attacker, other = people.person(admin), people.person(admin)
        transport = Transport(process.url)
        master = Master(transport)
        master.login(other.name, people.PASSWORD)
        searcher = {"name": "random", "metric": "error", "max_trials": 4, "max_concurrent_trials": 2}
        value = {"type": "double", "minval": 1, "maxval": 2}
        with attacking(process.url, attacker.api.token) as answers:
            text = trainings.experiment(searcher, epochs=5, value=value)
            number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
            waits = []
            while not master.experiment(number).ended_for_good:
                began = time.monotonic()
                assert other.api.get("/api/v1/experiments").status == 200
                waits.append(time.monotonic() - began)
        ended = wait_ended(master, number)
        assert ended.state == "COMPLETED"
        trials = master.trials(number)
        assert len(trials) == 4
        assert set(map(tuple, validations(master, [trial.id for trial in trials]).values())) == {(1, 2, 3, 4, 5)}
        assert max(waits) < LONGEST
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) // 1024 < MEMORY
        assert sum(map(bool, answers.values())) > len(answers) // 2
        for name, said in answers.items():
            assert set(map(int, said)) <= ANSWERS.get(name, {400}) | REFUSED, (name, said)
        transport.close()
