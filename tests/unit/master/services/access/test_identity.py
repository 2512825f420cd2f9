"""Words that the master makes for people."""

import string
from collections.abc import Callable

import pytest

from trainmaster.master.services.access.identity import generate_password, new_secret


@pytest.mark.parametrize("make", [lambda: new_secret(32), generate_password])
def test_a_word_for_a_person_is_no_option_of_a_command(make: Callable[[], str]) -> None:
    # Of 64 first characters one is forbidden: 4,000 words without the guard would miss it once in 10^27 runs.
    first = {make()[0] for _ in range(4000)}
    assert first == {*string.ascii_letters, *string.digits, "_"}
