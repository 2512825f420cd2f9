from __future__ import annotations

import itertools

from trainmaster.master.admission import password_guesses
from trainmaster.master.admission.password_guesses import (
    ADDRESS,
    FORGOTTEN,
    NAME,
    PAIR,
    BackoffRule,
    PasswordGuesses,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def guessed(found: PasswordGuesses, name: str, address: str, times: int) -> int:
    """How many of so many attempts, one right after the other, may be made."""
    return sum(found.begin(name, address) == 0 for _ in range(times))


def test_waits_double_up_to_the_longest() -> None:
    rule = BackoffRule(2, 10.0)
    assert [rule.wait(n) for n in range(1, 9)] == [0, 0, 1, 2, 4, 8, 10, 10]
    assert rule.wait(10**9) == 10


def test_a_few_mistakes_are_free_and_then_each_costs_more() -> None:
    clock = Clock()
    found = PasswordGuesses(clock)
    assert guessed(found, "ada", "a", 10) == PAIR.free + 1
    waits = []
    for _ in range(12):
        waits.append(found.begin("ada", "a"))
        clock.now += waits[-1]
        assert found.begin("ada", "a") == 0
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert waits[-1] == PAIR.longest
    clock.now += FORGOTTEN + 1
    assert guessed(found, "ada", "a", 10) == PAIR.free + 1


def test_success_wipes_the_slate() -> None:
    found = PasswordGuesses(Clock())
    for _ in range(50):
        assert found.begin("ada", "a") == 0
        found.succeeded("ada", "a")
    assert guessed(found, "ada", "a", 3) == 3
    assert found.begin("ada", "a") == 0
    found.succeeded("ada", "a")
    assert guessed(found, "ada", "a", 10) == PAIR.free + 1


def test_withdrawn_attempts_do_not_count() -> None:
    found = PasswordGuesses(Clock())
    for _ in range(50):  # the database was away
        assert found.begin("ada", "a") == 0
        found.withdrawn("ada", "a")


def test_one_bad_user_of_portal_locks_out_no_other() -> None:
    found = PasswordGuesses(Clock())
    for number in range(200):  # who came in once before
        assert found.begin(f"u{number}", "portal") == 0
        found.succeeded(f"u{number}", "portal")
    guessed(found, "bad", "portal", 1000)
    assert found.begin("bad", "portal") > 0
    assert all(found.begin(f"u{number}", "portal") == 0 for number in range(200))
    assert found.begin("new", "portal") == 0  # who comes for the first time does not wait either


def test_guesses_from_elsewhere_do_not_lock_out_user() -> None:
    found = PasswordGuesses(Clock())
    found.begin("ada", "home")
    found.succeeded("ada", "home")
    got = sum(guessed(found, "ada", f"bot{number}", 5) for number in range(100))
    assert got <= NAME.free + 1
    assert found.begin("ada", "home") == 0
    assert 0 < found.begin("ada", "elsewhere") <= NAME.longest


def test_client_with_mark_is_not_held_back_by_guesser() -> None:
    found = PasswordGuesses(Clock())
    assert found.begin("ada", "portal") == 0
    found.succeeded("ada", "portal")
    guessed(found, "ada", "portal", 1000)
    assert found.begin("ada", "portal") > 0
    assert found.begin("ada", "portal", "mark") == 0
    found.succeeded("ada", "portal", "mark")
    assert found.begin("ada", "portal") > 0  # the guesser gains nothing by it
    assert sum(found.begin("ada", "portal", "mark") == 0 for _ in range(50)) == PAIR.free + 1


def test_many_names_from_one_address_are_held_back_together() -> None:
    found = PasswordGuesses(Clock())
    assert sum(guessed(found, f"n{number}", "bot", 1) for number in range(500)) == ADDRESS.free + 1
    assert found.begin("ada", "home") == 0


def test_no_flood_fills_the_memory() -> None:
    found = PasswordGuesses(Clock())
    for number in itertools.islice(itertools.count(), password_guesses.KEPT + 10):
        found.begin(f"n{number}", f"a{number}")
        found.succeeded(f"n{number}", f"b{number}")
    assert len(found._counts) <= password_guesses.KEPT
    assert len(found._good) <= password_guesses.KEPT
