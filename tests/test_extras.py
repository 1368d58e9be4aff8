"""The small installation, without the packages of the extra `train`: exported models run, the rest names the extra."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from colour_model import write_colour_model
from manylabel.builtin import sample_photos

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORT_NAMES = {"scikit-learn": "sklearn", "huggingface-hub": "huggingface_hub"}
PACKAGES = [re.match(r"[\w-]+", line)[0] for line in PROJECT["optional-dependencies"]["train"]]
MODULES = [IMPORT_NAMES.get(name, name) for name in PACKAGES]
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({MODULES!r}))\n"
PIP = 'pip install "manylabel[train]"'


def run(code, *arguments):
    command = [sys.executable, "-c", BLOCK + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def manylabel(*arguments):
    return run("from manylabel.cli.main import main; main()", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    write_colour_model(folder / "colours.onnx")
    Image.new("RGB", (40, 40), "red").save(folder / "red.png")
    return folder


def test_no_dependency_of_the_small_installation_is_one_of_training():
    assert "torch" in PACKAGES
    assert not {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]} & set(PACKAGES)


@pytest.mark.slow
def test_the_builtin_model_names_a_cat():
    shown = manylabel("predict", sample_photos()[1])
    assert "\tcat " in shown.stdout, shown.stderr


@pytest.mark.slow
def test_without_torch_the_server_offers_neither_heat_maps_nor_new_tags():
    code = "from manylabel.server import ServedModel; model = ServedModel.open()\n"
    shown = run(code + "print(len(model.spec.labels), model.folder, model.takes_new_labels)")
    assert shown.stdout == "80 None False\n", shown.stderr


@pytest.mark.slow
def test_an_exported_model_predicts_draws_and_writes_tags(folder, tmp_path):
    command = ["predict", folder / "red.png", "--model", folder / "colours.onnx"]
    shown = manylabel(*command)
    assert shown.stdout.endswith("red 1.00\n"), shown.stderr
    for option in (["--draw", tmp_path / "drawn"], ["--out", tmp_path / "tags.csv"], ["--sidecar", "txt"]):
        done = manylabel(*command, *option)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_needs_more_names_the_extra(folder, tmp_path):
    model = ["--model", folder / "colours.onnx"]
    parquet = manylabel("predict", folder / "red.png", *model, "--out", tmp_path / "tags.parquet")
    training = manylabel("train", "scenes:20", "--out", tmp_path / "run")
    typed = manylabel("predict", folder / "red.png", "--labels", "espresso")
    assert typed.stderr.replace("\n", " ").strip().endswith('pip install "manylabel[text]"')
    for failed in (parquet, training):
        assert failed.returncode == 2
        assert failed.stderr.replace("\n", " ").strip().endswith(PIP)
    assert not list(tmp_path.iterdir())
    (folder / "tagger").mkdir()
    code = "import manylabel as ml, sys\ntry: {}\nexcept ImportError as error: print(error)"
    assert run(code.format("ml.Classifier")).stdout == f"torch is not installed; run: {PIP}\n"
    told = run(code.format("ml.inference.open_engine(sys.argv[1])"), folder / "tagger").stdout
    assert told.startswith(f"tagger is not exported and needs torch; run: {PIP}, or export"), told
