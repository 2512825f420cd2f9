"""Every endpoint of Determined 0.38.1: served, or refused with 501 and a sentence; never unknown, never a bug."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.master import MasterProcess
from trainmaster.master.http.not_served import REFUSED

ENDPOINTS = Path(__file__).parent.parent.parent / "data" / "determined-0.38.1" / "endpoints.csv"
NOBODY = "99999999"  # the number of no thing


def rows() -> list[tuple[str, str, str]]:
    with ENDPOINTS.open() as file:
        return [(row["method"], row["path"], row["rpc"]) for row in csv.DictReader(file)]


@pytest.fixture
def caller(master: MasterProcess) -> Api:
    """A session of its own: the walk logs out too."""
    return Api(master.url, log_in(master, "admin"))


def test_every_endpoint_of_determined_is_known(master: MasterProcess, caller: Api) -> None:
    """Each is called about things that there are not, with an empty body: the address itself must be known."""
    found = rows()
    assert len(found) == 261
    refused = {re.sub(r"{[^}]*}", "{}", key) for key in REFUSED}
    for method, path, rpc in found:
        address = re.sub(r"{[^}]*}", NOBODY, path)
        answer = caller.call(method, address, None if method == "GET" else {})
        if f"{method} {re.sub(r'{[^}]*}', '{}', path)}" in refused:
            assert answer.status == 501, (rpc, answer.content)
            assert answer.error["code"] == 12
            assert answer.sentence.endswith(".")
            continue
        assert answer.status < 500, (rpc, answer.content)
        assert answer.status != 405, (rpc, method, path)
        assert "There is nothing at" not in answer.content.decode(), (rpc, method, path)
        if rpc == "Logout":
            caller = Api(master.url, log_in(master, "admin"))


@pytest.mark.parametrize("address", ["/saml/initiate", "/oidc/callback", "/scim/v2/Users", "/oauth2/clients"])
def test_single_sign_on_is_refused_in_words(anonymous: Api, address: str) -> None:
    answer = anonymous.get(address)
    assert answer.status == 501
    assert "single sign-on" in answer.sentence
