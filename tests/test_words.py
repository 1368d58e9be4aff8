"""The words of the field: phrases that nobody searches for stay out of everything a reader sees."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ODD = re.compile(
    r"when left out|by heart|made small|(is|are|was|were) told|(as|what) one would|that were less|\bpictures?\b(?!\")",
    re.IGNORECASE,
)
READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".js", ".html"}),
]


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_speaks_the_language_of_the_field(path):
    found = [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ODD.search(line)
    ]
    assert not found
