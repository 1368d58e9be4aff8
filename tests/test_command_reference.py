"""The reference of commands, made when the docs are built."""

from pathlib import Path

import pytest
from tools.command_reference import MARKER, on_page_markdown

from manylabel.cli.main import COMMANDS
from manylabel.settings import RECIPE_SETTINGS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def page():
    return on_page_markdown((ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8"))


def test_every_command_and_recipe_has_a_section(page):
    titles = [line.lstrip("# ") for line in page.splitlines() if line.startswith("##")]
    assert [title for title in titles if title.count(" ") == 1] == [f"manylabel {name}" for name in COMMANDS]
    recipes = [title.split()[-1] for title in titles if "--recipe" in title]
    assert recipes == [name for name in RECIPE_SETTINGS if name != "probe"]
    assert {"manylabel data check", "manylabel runs list", "manylabel vocabulary add"} <= set(titles)


def test_the_page_has_the_complete_help(page):
    assert MARKER not in page
    assert "--weight-decay" in page  # only in --help-all
    assert "\x1b" not in page


def test_other_pages_stay_as_they_are():
    assert on_page_markdown("# Title") == "# Title"
