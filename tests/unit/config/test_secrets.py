"""Masks for secrets in configurations."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.config.masks import MASK
from trainmaster.config.secrets import for_job, masked, masked_text, masks, unmasked
from trainmaster.config.source import read

SECRETS = {"password": "hunter2", "auth": "aHVudGVyMg==", "identitytoken": "id", "registrytoken": "rt"}


def config(**auth: str | None) -> dict[str, object]:
    return {"name": "x", "environment": {"image": "i", "registry_auth": {"username": "ada", "email": None, **auth}}}


def test_every_secret_is_masked_and_comes_back_from_the_original() -> None:
    original = config(**SECRETS)
    shown = masked(original)
    assert shown == config(**dict.fromkeys(SECRETS, MASK))
    assert original == config(**SECRETS)
    places = [f"environment.registry_auth.{key}" for key in SECRETS]
    assert (masks(shown), masks(original)) == (places, [])
    assert unmasked(shown, original) == original
    assert masks(unmasked(shown, config(password="hunter2"))) == places[1:]
    assert unmasked(config(password="new"), original) == config(password="new")


@pytest.mark.parametrize(
    ("original", "shown"),
    [
        ({"checkpoint_storage": {"type": "s3", "bucket": "b", "secret_key": "s", "access_key": "a"}},
         {"checkpoint_storage": {"type": "s3", "bucket": "b", "secret_key": MASK, "access_key": MASK}}),
        ({"checkpoint_storage": {"connection_string": "x;y", "container": "c"}},
         {"checkpoint_storage": {"connection_string": MASK, "container": "c"}}),
        ({"environment": {"environment_variables": ["HF_TOKEN=abc", "A=1", "TOKENIZERS_PARALLELISM=true", "TOKEN"]}},
         {"environment": {"environment_variables": [f"HF_TOKEN={MASK}", "A=1", "TOKENIZERS_PARALLELISM=true",
                                                    "TOKEN"]}}),
        ({"environment": {"environment_variables": {"cpu": ["WANDB_API_KEY=k"], "cuda": ["B=2", "X_SECRET=k=1"]}}},
         {"environment": {"environment_variables": {"cpu": [f"WANDB_API_KEY={MASK}"],
                                                    "cuda": ["B=2", f"X_SECRET={MASK}"]}}}),
        ({"environment": {"pod_spec": {"env": [{"name": "DB_PASSWORD", "value": "p"}, {"name": "A", "value": "1"}]}}},
         {"environment": {"pod_spec": {"env": [{"name": "DB_PASSWORD", "value": MASK}, {"name": "A", "value": "1"}]}}}),
        ({"data": {"url": "postgresql://ada:pw@host/db", "sas": "https://a.example/c?sv=1&sig=Ab%2F&se=2"}},
         {"data": {"url": f"postgresql://ada:{MASK}@host/db", "sas": f"https://a.example/c?sv=1&sig={MASK}&se=2"}}),
        ({"integrations": {"pachyderm": {"dataset": {"token": "t", "repo": "r"}}}},
         {"integrations": {"pachyderm": {"dataset": {"token": MASK, "repo": "r"}}}}),
        ({"db": {"password": "p", "password_file": "/etc/p"}, "security": {"initial_user_password": "p"}},
         {"db": {"password": MASK, "password_file": "/etc/p"}, "security": {"initial_user_password": MASK}}),
    ],
)  # fmt: skip
def test_a_value_is_hidden_by_the_name_of_its_key(original: dict[str, Any], shown: dict[str, Any]) -> None:
    assert masked(original) == shown
    assert unmasked(shown, original) == original
    assert masked(shown) == shown
    assert masks(shown)
    assert MASK not in str(unmasked(shown, original))


def test_mask_gets_value_of_its_own_variable() -> None:
    original = {"environment_variables": ["A_TOKEN=1", "B_TOKEN=2"]}
    assert unmasked({"environment_variables": ["C=3", f"B_TOKEN={MASK}"]}, original) == {
        "environment_variables": ["C=3", "B_TOKEN=2"]
    }
    assert masks(unmasked({"environment_variables": [f"C_TOKEN={MASK}"]}, original)) == ["environment_variables"]


def test_a_mask_is_not_exchanged_for_the_secret_of_another_key() -> None:
    """Somebody who may read a fork's `description` would learn what the original's password is."""
    original = config(**SECRETS)
    moved = {**masked(original), "name": MASK, "description": MASK}
    found = unmasked(moved, original)
    assert (found["name"], found["description"]) == (MASK, MASK)


@pytest.mark.parametrize(
    ("original", "moved"),
    [
        ({"type": "s3", "bucket": "b", "secret_key": "s"}, {"endpoint_url": "https://mallory.example"}),
        ({"environment": {"registry_auth": {"server": "r", "password": "p"}}},
         {"environment": {"registry_auth": {"server": "mallory.example", "password": MASK}}}),
        ({"type": "azure", "account_url": "https://a", "credential": "c"}, {"account_url": "https://mallory.example"}),
    ],
)  # fmt: skip
def test_a_secret_is_not_sent_to_another_place_than_it_was_for(original: dict[str, Any], moved: dict[str, Any]) -> None:
    """Whoever may change a storage, a policy or a template would read there what is hidden from them here."""
    found = unmasked({**masked(original), **moved}, original)
    assert masks(found)
    assert not {"s", "p", "c"} & set(str(found).replace("'", " ").split())


def test_hyperparameters_are_shown_whatever_they_are_called() -> None:
    given = {"hyperparameters": {"token": "bpe", "secret": {"type": "const", "val": "x"}}}
    assert masked(given) == given
    assert masks({"hyperparameters": {"stars": MASK}}) == []


def test_the_job_gets_everything_but_the_registrys_password() -> None:
    given = {**config(**SECRETS), "data": {"password": "for the training"}}
    assert for_job(given)["data"] == given["data"]
    assert for_job(given)["environment"] == masked(given)["environment"]


def test_configuration_without_secret_stays_unchanged() -> None:
    for given in ({}, {"environment": None}, {"environment": {"registry_auth": None}}, config(password=None)):
        assert masked(given) == given


def test_a_text_is_kept_to_the_letter_unless_it_holds_a_secret() -> None:
    text = "name: x  # registry_auth\nenvironment: {image: i}\n"
    assert masked_text(text) == text
    assert masked_text("environment: {registry_auth: [unclosed") == "environment: {registry_auth: [unclosed"
    hidden = masked_text('environment: {registry_auth: {username: ada, password: "hunt\\x65r2"}}\nname: "01"\n')
    assert "hunter2" not in hidden
    assert "hunt\\x65r2" not in hidden
    assert read(hidden, "x").data == {
        "environment": {"registry_auth": {"username": "ada", "password": MASK}},
        "name": "01",
    }
