"""A device that the machine lacks is one sentence and exit code 2, whatever command asks for it."""

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.errors import ConfigError
from manylabel.system import find_device

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture
def data(tmp_path):
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("image,labels\na.png,cat|dog\n")
    return f"csv:{tmp_path / 'labels.csv'},images={tmp_path}"


@pytest.mark.parametrize("command", ["predict", "evaluate", "compare", "tune", "report", "serve"])
def test_a_missing_gpu_is_one_sentence(command, data, tmp_path, tiny_model):
    model = str(tiny_model)
    arguments = {
        "predict": [str(tmp_path / "a.png"), "--model", model],
        "evaluate": [data, "--model", model],
        "compare": [data, "--model", model, "--model", model],
        "tune": [data, "--model", model, "--dry-run"],
        "report": [str(tmp_path), "--out", str(tmp_path / "report.html")],
        "serve": ["--model", model],
    }[command]
    result = CliRunner().invoke(app, [command, *arguments, "--device", "cuda"])
    assert isinstance(result.exception, ConfigError), result.exception
    assert str(result.exception).startswith("this machine has no cuda device that torch can use; ")


@pytest.mark.parametrize(
    ("name", "words"), [("gpu", "there is no device 'gpu'"), ("cuda:9", "no cuda device"), ("meta", "no meta device")]
)
def test_names_of_devices_are_checked(name, words):
    with pytest.raises(ConfigError, match=words):
        find_device(name)
