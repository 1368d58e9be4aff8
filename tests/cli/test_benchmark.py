import json

import pytest
from typer.testing import CliRunner

from manylabel.cli.benchmark import app
from manylabel.errors import ConfigError


def test_prints_paper_and_ours_side_by_side() -> None:
    result = CliRunner().invoke(app, ["tables", "ml-decoder"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if "K=400" in line and "self-attention" in line)
    assert "12.4" in line
    assert "8.8265" in line
    assert line.rstrip().endswith("2)")
    assert "2) does not follow from the text" in result.output
    assert "2 of 10 numbers do not follow" in result.output


def test_prints_json_for_programs() -> None:
    result = CliRunner().invoke(app, ["tables", "ml-decoder", "--json"])
    rows = json.loads(result.output)
    assert len(rows) == 10
    assert {row["of"] for row in rows} == {"ml-decoder"}


def test_rejects_an_unknown_paper() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ml-decoder'"):
        CliRunner().invoke(app, ["tables", "mldecoder"], catch_exceptions=False)
