"""`manylabel data`."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import polars as pl
import psutil
import pytest
from PIL import Image
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.data import load, write_scenes
from manylabel.errors import ConfigError


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """Twelve scenes in folders of one label each."""
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder / "drawn", 12, size=48)
    for index, image in enumerate(sorted((folder / "drawn").rglob("*.jpg"))):
        target = folder / "labels" / ("cat" if index % 2 else "dog") / image.name
        target.parent.mkdir(parents=True, exist_ok=True)
        image.rename(target)
    return f"folder:{folder / 'labels'}"


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Folders of labels in which no file is an image."""
    folder = tmp_path_factory.mktemp("broken")
    for name in ("cat/a.jpg", "dog/b.jpg"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("no image")
    return f"folder:{folder}"


def run(*arguments):
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


def test_prints_a_table_and_the_findings(spec):
    result = run(spec)
    assert result.exit_code == 0, result.output
    for words in ("12 images", "2 labels", "cat", "50.0%", "0 unreadable images", "No problems found"):
        assert words in result.stdout


def test_exit_code_1_says_that_training_would_break(broken):
    result = run(broken)
    assert result.exit_code == 1
    assert "problem" in result.stdout
    assert "2 of 2 images cannot be read" in result.stdout


def test_prints_nothing_but_json_when_asked(broken):
    result = run(broken, "--json")
    values = json.loads(result.stdout)
    assert result.exit_code == 1
    assert values["is_sound"] is False
    assert [image["name"] for image in values["bad"]] == ["cat/a.jpg", "dog/b.jpg"]


@pytest.mark.slow
def test_writes_a_page(spec, tmp_path):
    result = run(spec, "--html", tmp_path / "check.html")
    assert result.exit_code == 0, result.output
    assert "<title>Check of" in (tmp_path / "check.html").read_text(encoding="utf-8")
    assert f"Wrote {tmp_path / 'check.html'}" in result.stdout


def test_refuses_to_overwrite_before_it_starts_to_work(tmp_path):
    page = tmp_path / "check.html"
    page.write_text("mine")
    result = run("folder:no/such/folder", "--html", page)
    assert "already exists" in str(result.exception)
    assert page.read_text() == "mine"


@pytest.mark.slow
def test_overwrites_when_asked(spec, tmp_path):
    page = tmp_path / "check.html"
    page.write_text("mine")
    assert run(spec, "--html", page, "--overwrite").exit_code == 0
    assert "mine" not in page.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
def test_ctrl_c_ends_all_processes_without_a_traceback(tmp_path):
    folder = tmp_path / "cat"
    folder.mkdir()
    write_scenes(tmp_path / "drawn", 1, size=1600)
    image = next((tmp_path / "drawn").rglob("*.jpg"))
    for index in range(2000):
        os.link(image, folder / f"{index}.jpg")
    command = [sys.executable, "-m", "manylabel", "data", "check", f"folder:{tmp_path}", "--workers", "2"]
    running = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore Ctrl-C
    )
    while len(psutil.Process(running.pid).children(recursive=True)) < 4:  # two workers and the two that mind them
        assert running.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    others = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(others, timeout=10)
    assert alive == []


def test_scenes_are_written_and_the_command_says_where(tmp_path):
    result = CliRunner().invoke(
        app, ["data", "scenes", "--out", str(tmp_path / "demo"), "--num-images", "2", "--seed", "4"]
    )
    assert result.exit_code == 0, result.output
    assert "labels.csv" in result.output
    table = pl.read_csv(tmp_path / "demo" / "labels.csv")
    assert [(tmp_path / "demo" / name).exists() for name in table["image"]] == [True, True]


@pytest.fixture
def messy(tmp_path):
    """A table with two spellings of a label, and an image that cannot be read."""
    write_scenes(tmp_path / "drawn", 10, size=48)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "drawn").rglob("*.jpg"))
    (tmp_path / "bad.jpg").write_text("no image")
    rows = [f"{name},{'cat' if index % 2 else 'dog'}" for index, name in enumerate(names)]
    (tmp_path / "tags.csv").write_text("\n".join(["image,tags", *rows, f"{names[0]},Cat", "bad.jpg,cat"]) + "\n")
    return tmp_path / "tags.csv"


def test_split_writes_a_table_that_is_read_as_two_sets(messy, tmp_path):
    out = tmp_path / "elsewhere" / "split.csv"
    command = ["data", "split", str(messy), "--val-fraction", "0.3", "--out", str(out)]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert f"Wrote {out}: 8 train, 3 val" in result.stdout
    dataset = load(out)
    assert {name: len(members) for name, members in dataset.splits.items()} == {"train": 8, "val": 3}
    assert all(dataset.images[index].is_file() for index in range(11))
    assert "already exists" in str(CliRunner().invoke(app, command).exception)


def test_fix_writes_a_clean_table_and_lists_the_changes(messy, tmp_path):
    out = tmp_path / "clean.csv"
    result = CliRunner().invoke(app, ["data", "fix", str(messy), "--unreadable", "--out", str(out)])
    assert result.exit_code == 0, result.exception
    assert "renamed 'Cat' (1 image) to 'cat'" in result.stdout
    assert "dropped 'bad.jpg'" in result.stdout
    assert f"Wrote {out}" in result.stdout
    assert load(out).labels.names == ("cat", "dog")


THEMES = [  # what the demo scenes plant; cloud, cat, house and tree are in two themes each
    {"apple", "book", "clock", "cup", "lamp"},
    {"ball", "boat", "fish", "sun", "umbrella"},
    {"balloon", "bird", "flower", "kite", "mushroom"},
    {"moon", "rocket", "star"},
    {"car", "traffic light"},
]


def run_graph(*arguments):
    return CliRunner().invoke(app, ["graph", *map(str, arguments)])


@pytest.mark.slow
def test_prints_both_partitions():
    result = run_graph("scenes:600", "--k", 20)  # so many that some subsets have one label
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
    result = run_graph("scenes:600", "--partition", "co", "--json")
    values = json.loads(result.stdout)
    (partition,) = values["partitions"]
    subsets = [set(subset) for subset in partition["subsets"]]
    assert all(any(theme <= subset for subset in subsets) for theme in THEMES)
    assert len(values["labels"]) == 24
    assert values["tau"] == 2


@pytest.mark.parametrize(("kind", "sizes"), [("random", [8, 8, 8]), ("dis", None)])
@pytest.mark.slow
def test_the_kind_and_the_number_of_subsets_are_ones_own(kind, sizes):
    (partition,) = json.loads(run_graph("scenes:200", "--partition", kind, "--k", 3, "--json").stdout)["partitions"]
    assert partition["kind"] == kind
    assert sizes in (None, partition["sizes"])
    assert len(partition["subsets"]) == 3


@pytest.mark.slow
def test_writes_files_and_overwrites_only_when_asked(tmp_path):
    files = ("--partition", "co", "--out", tmp_path / "graph.png")
    result = run_graph("scenes:100", *files)
    assert result.exit_code == 0, result.output
    assert "graph.png" in result.stdout
    with Image.open(tmp_path / "graph.png") as image:
        assert image.format == "PNG"
    assert "already exists" in str(run_graph("scenes:100", *files).exception)
    assert run_graph("scenes:100", *files, "--overwrite").exit_code == 0


def test_more_subsets_than_labels_are_refused():
    assert "between 1 and the number of labels (24)" in str(run_graph("scenes:20", "--k", 25).exception)


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


@pytest.mark.slow
def test_labels_are_found_written_and_applied(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    table = str(write_scenes(tmp_path / "scenes", 80))

    def data(*words):
        return CliRunner().invoke(app, ["data", *words], catch_exceptions=False).stdout

    small = ("--backbone", "offline:efficientnet_lite0", "--head", "linear", "--folds", "2", "--workers", "0")
    assert "80 images" in data("labels", table, "--out", "issues.csv", "--html", "issues.html", *small)
    found = (tmp_path / "issues.csv").read_text().splitlines()
    assert found[0] == "image,label,given,suggested,score"
    assert "Labels of" in (tmp_path / "issues.html").read_text(encoding="utf-8")
    assert len(json.loads(data("labels", table, "--json", *small))["issues"]) == len(found) - 1 > 0
    assert data("fix", table, "--accept", "issues.csv", "--out", "fixed.csv").count("changed ") == len(found) - 1
    with pytest.raises(ConfigError, match="must end in"):
        data("labels", table, "--out", "issues.xlsx")
    with pytest.raises(ConfigError, match="did you mean 'ml_decoder'"):
        data("labels", table, "--head", "ml_decodr")
