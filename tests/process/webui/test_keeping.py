"""What the page says and changes of what is kept: checkpoints by policy and by pin, their bytes, and code's commit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.api.jobs import config
from tests.support.master import MasterProcess
from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.searches import Searches

pytestmark = pytest.mark.browser


@pytest.fixture
def visitor(searcher: Visit) -> Visit:
    return searcher


def test_policy_is_saved_after_its_preview(
    visitor: Visit, searches: Searches, site: tuple[MasterProcess, Searches], pictures: Path, axe: str
) -> None:
    client = site[0].client()
    page = visitor.open(f"experiments/{searches.small}/checkpoints")
    page.get_by_role("button", name="Choose what is kept").click()
    dialog = page.get_by_role("dialog")
    latest = dialog.get_by_label("Latest of each trial")
    for label in ("Best of the experiment", "Best of each trial", "Latest of each trial"):
        dialog.get_by_label(label).fill("0")
    expected = client.edits.preview_gc(searches.small, 0, 0, 0)["checkpoints"]
    expect(dialog.get_by_role("status")).to_contain_text(f"Would remove {len(expected)} checkpoint")
    expect(dialog.get_by_role("list", name="Checkpoints that would be removed")).to_contain_text(expected[0]["UUID"])
    picture(page, pictures, "checkpoint-policy")
    assert violations(page, axe) == []
    latest.fill("")
    expect(dialog.get_by_role("alert")).to_have_text("Write whole numbers from 0.")
    expect(dialog.get_by_role("button", name="Save")).to_be_disabled()
    latest.fill("99999")
    expect(dialog.get_by_role("status")).to_have_text("No checkpoint would be removed.")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("Saved.")).to_be_visible()
    kept = client.experiment(searches.small).config["checkpoint_storage"]
    assert [kept[f"save_{key}"] for key in ("experiment_best", "trial_best", "trial_latest")] == [0, 0, 99999]


def test_checkpoint_is_pinned_and_let_go(
    visitor: Visit, searches: Searches, site: tuple[MasterProcess, Searches]
) -> None:
    page = visitor.open(f"experiments/{searches.small}/checkpoints")
    pin = page.get_by_role("button", name=re.compile("^Pin checkpoint")).first
    uuid = str(pin.get_attribute("aria-label")).split()[-1]
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    assert uuid not in str(site[0].client().edits.preview_gc(searches.small, 0, 0, 0))
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "false")


def test_usage_says_who_keeps_how_much(visitor: Visit, searches: Searches, pictures: Path, axe: str) -> None:
    page = visitor.open("usage")
    table = page.get_by_role("grid", name="Checkpoints by experiment")
    expect(table.get_by_role("link", name=re.compile(f"^{searches.large} "))).to_be_visible()
    expect(page.get_by_text(re.compile("of .* are free"))).to_be_visible()
    page.get_by_role("button", name="by owner").click()
    expect(page.get_by_role("grid", name="Checkpoints by owner").get_by_role("link", name="determined")).to_be_visible()
    expect(page).to_have_url(re.compile("by=owner"))
    picture(page, pictures, "usage-storage")
    assert violations(page, axe) == []


def test_code_names_its_commit_and_what_was_changed_since(
    visitor: Visit, site: tuple[MasterProcess, Searches], tmp_path: Path, pictures: Path, axe: str
) -> None:
    def git(*arguments: str) -> str:
        person = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        done = subprocess.run(["git", *person, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    (tmp_path / "train.py").write_text("print('one')\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    git("remote", "add", "origin", "https://example.org/<b>cats</b>.git")
    (tmp_path / "train.py").write_text("print('two')\n")
    number = site[0].client().create_experiment(config(name="of a commit"), tmp_path, activate=False).id
    page = visitor.open(f"experiments/{number}/code")
    told = page.locator(".git-state")
    expect(told).to_contain_text(
        f"Commit {git('rev-parse', 'HEAD')[:12]} on main of https://example.org/<b>cats</b>.git, by Ada"
    )
    told.get_by_role("button", name="Uncommitted changes: 2 lines").click()
    expect(told.locator(".source")).to_contain_text("+print('two')")
    picture(page, pictures, "code-commit")
    assert violations(page, axe) == []
    page.reload()
    expect(told.locator(".source")).to_contain_text("+print('two')")
