"""MkDocs hook: the help of every command, written into the page that contains `MARKER` when the site is built."""

from collections.abc import Iterator

from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from manylabel.cli.main import COMMANDS, app
from manylabel.settings import RECIPE_SETTINGS

MARKER = "<!-- help of every command -->"
PLAIN = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}  # as wide as the column of the site


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the marker of a page by the reference; MkDocs calls this for each page."""
    return markdown.replace(MARKER, command_reference()) if MARKER in markdown else markdown


def command_reference() -> str:
    """Return a section for each command, with the help that it prints."""
    return "\n\n".join(
        f"{'##' if len(words) == 1 else '###'} manylabel {' '.join(words)}\n\n```text\n{help_of(words)}\n```"
        for words in commands()
    )


def commands() -> Iterator[list[str]]:
    """Yield the words of every command; groups come before their commands, `train` comes once for each recipe."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    for name in COMMANDS:
        yield [name]
        if isinstance(group := root.commands[name], TyperGroup):
            yield from ([name, each] for each in group.commands)
        if name == "train":
            yield from ([name, "--recipe", recipe] for recipe in RECIPE_SETTINGS if recipe != "probe")


def help_of(words: list[str]) -> str:
    """Return the complete help of a command as plain text."""
    flag = "--help-all" if words[0] == "train" else "--help"
    result = CliRunner().invoke(app, [*words, flag], env=PLAIN)
    if result.exit_code != 0:
        raise RuntimeError(f"manylabel {' '.join(words)} {flag} failed: {result.output}")
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())
