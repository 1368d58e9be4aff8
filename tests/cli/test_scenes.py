"""`manylabel data scenes`."""

import polars as pl
import typer
from typer.testing import CliRunner

from manylabel.cli.scenes import scenes

app = typer.Typer()
app.command()(scenes)


def test_writes_the_pictures_and_says_where_they_are(tmp_path):
    result = CliRunner().invoke(app, [str(tmp_path / "demo"), "--n", "2", "--size", "32", "--seed", "4"])
    assert result.exit_code == 0, result.output
    assert "labels.csv" in result.output
    table = pl.read_csv(tmp_path / "demo" / "labels.csv")
    assert [(tmp_path / "demo" / name).exists() for name in table["image"]] == [True, True]
