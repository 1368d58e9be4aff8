"""`manylabel graph`."""

import json
import subprocess
import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from manylabel.cli.main import app

THEMES = [  # what the demo scenes plant; cloud, cat, house and tree are in two themes each
    {"apple", "book", "clock", "cup", "lamp"},
    {"ball", "boat", "fish", "sun", "umbrella"},
    {"balloon", "bird", "flower", "kite", "mushroom"},
    {"moon", "rocket", "star"},
    {"car", "traffic light"},
]


def run(*arguments):
    return CliRunner().invoke(app, ["graph", *map(str, arguments)])


@pytest.mark.slow
def test_prints_both_partitions():
    result = run("scenes:600", "--k", 20)  # so many that some subsets have one label
    assert result.exit_code == 0, result.output
    for words in (
        "600 images, 24 labels",
        "Co-occurring labels",
        "Dissimilar labels",
        "Stability",
        "Alone in their subset",
    ):
        assert words in result.stdout


@pytest.mark.slow
def test_json_holds_the_graph_and_the_subsets():
    result = run("scenes:600", "--partition", "co", "--json")
    values = json.loads(result.stdout)
    (partition,) = values["partitions"]
    subsets = [set(subset) for subset in partition["subsets"]]
    assert all(any(theme <= subset for subset in subsets) for theme in THEMES)
    assert len(values["labels"]) == 24
    assert values["tau"] == 2


@pytest.mark.parametrize(("kind", "sizes"), [("random", [8, 8, 8]), ("dis", None)])
@pytest.mark.slow
def test_the_kind_and_the_number_of_subsets_are_ones_own(kind, sizes):
    (partition,) = json.loads(run("scenes:200", "--partition", kind, "--k", 3, "--json").stdout)["partitions"]
    assert partition["kind"] == kind
    assert sizes in (None, partition["sizes"])
    assert len(partition["subsets"]) == 3


@pytest.mark.slow
def test_writes_files_and_overwrites_only_when_asked(tmp_path):
    files = ("--partition", "co", "--out", tmp_path / "graph.png")
    result = run("scenes:100", *files)
    assert result.exit_code == 0, result.output
    assert "graph.png" in result.stdout
    with Image.open(tmp_path / "graph.png") as image:
        assert image.format == "PNG"
    assert "already exists" in str(run("scenes:100", *files).exception)
    assert run("scenes:100", *files, "--overwrite").exit_code == 0


def test_more_subsets_than_labels_are_refused():
    assert "between 1 and the number of labels (24)" in str(run("scenes:20", "--k", 25).exception)


@pytest.mark.slow
def test_help_does_not_wait_for_torch():
    code = (
        "import sys; sys.argv = ['manylabel', 'graph', '--help']\n"
        "from manylabel.cli.main import app\n"
        "try:\n    app()\nexcept SystemExit:\n    sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "manylabel graph" in result.stdout
