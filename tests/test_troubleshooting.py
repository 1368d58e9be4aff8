"""The page of error messages quotes messages that the package still has."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = [quote for quote in re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE) if quote != "address already in use"]


@pytest.fixture(scope="module")
def messages():
    """Every text in the package; what is filled in at run time is a NUL."""
    texts = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_message_is_one_of_the_package(quote, messages):
    pattern = re.compile(".*".join(re.escape(part) for part in quote.split("...")), re.DOTALL)
    assert any(pattern.search(text) for text in messages)


def test_the_page_quotes_many_messages():
    assert len(QUOTED) > 20
