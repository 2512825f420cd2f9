"""Threads of the runtime: they end as those of `threading` do, and nobody who waits is forgotten."""

from __future__ import annotations

import time

from trainmaster.runtime.threads import Condition, Event, Thread


def test_a_thread_lives_from_its_start_until_it_returns():
    go, done = Event(), []
    thread = Thread(lambda *words: done.append((go.wait(10), words)), "a", "b")
    assert not thread.is_alive()
    thread.join()  # of one that was not started: nothing to wait for
    thread.start()
    assert thread.is_alive()
    thread.join(0.01)
    assert thread.is_alive()
    go.set()
    thread.join(10)
    assert not thread.is_alive()
    thread.join()
    assert done == [(True, ("a", "b"))]


def test_a_subclass_says_what_it_runs():
    ran = Event()

    class Sets(Thread):
        def run(self):
            ran.set()

    Sets().start()
    assert ran.wait(10)


def test_a_thread_that_fails_says_so_and_has_ended(capsys):
    thread = Thread(lambda: 1 / 0)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_an_event_that_does_not_come_is_waited_for_so_long():
    event = Event()
    began = time.monotonic()
    assert not event.wait(0.05)
    assert time.monotonic() - began >= 0.05
    assert not event.wait(-1.0)
    event.set()
    event.set()
    assert event.is_set()
    assert event.wait()
    assert event.wait(0)


def test_everybody_who_waits_is_told():
    news, told, waiting = Condition(), [], []

    def wait(number):
        with news:
            waiting.append(number)
            told.append((number, news.wait(10)))

    threads = [Thread(wait, number) for number in range(20)]
    for thread in threads:
        thread.start()
    while len(waiting) < 20:
        time.sleep(0.001)
    with news:
        assert not told
        news.notify_all()
    for thread in threads:
        thread.join(10)
    assert sorted(told) == [(number, True) for number in range(20)]


def test_who_gave_up_waiting_is_not_told_later():
    news = Condition()
    with news:
        assert not news.wait(0.01)
        assert not news.wait(0)
        news.notify_all()
        assert not news.wait_for(lambda: False, 0.01)
        assert news.wait_for(lambda: True, 0)


def test_a_condition_that_comes_true_late_is_met():
    news, seen = Condition(), []

    def tell():
        for number in range(100):
            with news:
                seen.append(number)
                news.notify_all()

    with news:
        Thread(tell).start()
        assert news.wait_for(lambda: len(seen) == 100, 10)


def test_nothing_is_missed_between_two_that_take_turns():
    news, turn, took = Condition(), [0], []

    def play(mine):
        for _ in range(500):
            with news:
                assert news.wait_for(lambda: turn[0] % 2 == mine, 10)
                took.append(mine)
                turn[0] += 1
                news.notify_all()

    players = [Thread(play, number) for number in range(2)]
    for player in players:
        player.start()
    for player in players:
        player.join(20)
    assert took == [0, 1] * 500
