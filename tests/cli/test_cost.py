"""The cost of a model, as printed and as JSON."""

import json

import pytest
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.cost import count_parameters
from manylabel.errors import ConfigError
from tiny_runs import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made = make_model("linear", labels=["cat", "dog"])
    folder = tmp_path_factory.mktemp("models") / "tagger"
    made.save_pretrained(folder)
    return made, folder


def run(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)], catch_exceptions=False).output


@pytest.mark.slow
def test_the_numbers_are_those_of_the_model(model):
    made, folder = model
    found = json.loads(run("--model", folder, "--json"))
    assert found["parameters"] == count_parameters(made)
    assert found["head_parameters"] == count_parameters(made.head)
    assert found["macs"] > found["parameters"]
    assert found["milliseconds"] > 0
    assert found["peak_memory_bytes"] > 3 * 64 * 64 * 4


@pytest.mark.slow
def test_prints_a_table(model):
    printed = run("--model", model[1])
    assert "MACs per image" in printed
    assert "64 x 64" in printed


def test_rejects_a_device_that_is_not_there(model):
    with pytest.raises(ConfigError, match="nowhere"):
        run("--model", model[1], "--device", "nowhere")
