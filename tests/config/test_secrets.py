"""What of a configuration is not shown."""

from __future__ import annotations

from trainmaster.config.secrets import MASK, masked, masked_text, masks, unmasked
from trainmaster.config.source import read

SECRETS = {"password": "hunter2", "auth": "aHVudGVyMg==", "identitytoken": "id", "registrytoken": "rt"}


def config(**auth: str | None) -> dict[str, object]:
    return {"name": "x", "environment": {"image": "i", "registry_auth": {"username": "ada", "email": None, **auth}}}


def test_every_secret_is_masked_and_comes_back_from_the_original() -> None:
    original = config(**SECRETS)
    shown = masked(original)
    assert shown == config(**dict.fromkeys(SECRETS, MASK))
    assert original == config(**SECRETS)
    assert (masks(shown), masks(original)) == (list(SECRETS), [])
    assert unmasked(shown, original) == original
    assert masks(unmasked(shown, config(password="hunter2"))) == ["auth", "identitytoken", "registrytoken"]
    assert unmasked(config(password="new"), original) == config(password="new")


def test_what_has_no_secret_stays_as_it_is() -> None:
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
