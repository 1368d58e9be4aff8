import json
import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import manylabel
from manylabel.cli.main import app
from manylabel.cli.train import RunOptions
from manylabel.schema import settings_fields
from manylabel.settings import RECIPE_SETTINGS


def run(*arguments, **settings):
    command = [sys.executable, "-m", "manylabel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **settings)


@pytest.mark.slow
def test_help_tells_a_newcomer_where_to_start():
    result = run("--help")
    assert result.returncode == 0
    assert "Multi-label image classification" in result.stdout
    assert "manylabel data check" in result.stdout


@pytest.mark.slow
def test_commands_are_listed_in_the_order_of_their_use():
    listed = [line.split()[1] for line in run("--help").stdout.splitlines() if re.match(r"│ [a-z]+ ", line)]
    order = ["data", "suggest", "train", "evaluate", "tune", "apply", "predict", "explain", "serve", "export"]
    assert listed[: len(order)] == order


def leaves(command, path=""):
    """Yield the path and the options of every command."""
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, f"{path} {name}".strip())
    if not hasattr(command, "commands"):
        yield path, [param for param in command.params if param.param_type_name == "option"]


EXCEPTIONS = {
    "out",  # each command writes its own kind of file
    "executor",  # `train` distinguishes parallel from sequential teachers on this machine
    "folds",  # each fold of `data labels` trains a head, those of `tune` only fit thresholds
    "model",  # commands that evaluate or change a model have no default
}


def test_the_same_option_takes_the_same_kind_of_value_and_has_the_same_default_everywhere():
    kinds, defaults, texts = {}, {}, {}
    for path, options in leaves(get_command(app)):
        for option in options:
            assert option.is_flag or option.metavar, f"{path} {option.name}"
            if option.name not in EXCEPTIONS:
                kinds.setdefault(option.name, set()).add("flag" if option.is_flag else option.metavar)
                texts.setdefault(option.name, set()).add(option.help)
                defaults.setdefault(option.name, set()).update([] if option.required else [str(option.default)])
    for settings in (*RECIPE_SETTINGS.values(), RunOptions):
        for name, field in settings_fields(settings).items():
            if field.is_flag and name in kinds:
                assert field.is_switch == (kinds[name] == {"flag"}), name
                defaults[name].add(str(field.default))
    for table in (kinds, defaults, texts):
        assert {name: each for name, each in table.items() if len(each) > 1} == {}


def test_there_are_at_most_two_hundred_options_and_fifty_settings():
    settings = {
        field.name for kind in RECIPE_SETTINGS.values() for field in settings_fields(kind).values() if field.is_flag
    }
    assert len(settings) <= 50
    others = sum(len(options) for _, options in leaves(get_command(app)))
    assert len(settings | set(settings_fields(RunOptions))) + others <= 200


@pytest.mark.parametrize("command", [path for path, _ in leaves(get_command(app)) if path != "train"])
def test_help_shows_every_option_in_one_screen(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"})
    assert len(result.stdout.splitlines()) <= 50
    assert result.stdout.startswith(f"Usage: manylabel {command} ") or "Usage: root" in result.stdout
    for wrong in ("<bool>", "<str>", "None", "(none)"):
        assert wrong not in result.stdout


@pytest.mark.slow
def test_version():
    assert run("--version").stdout.strip() == f"manylabel {manylabel.__version__}"


@pytest.mark.parametrize("kind", ["models", "heads", "backbones", "recipes", "formats"])
@pytest.mark.slow
def test_list_answers_for_every_kind(kind):
    result = run("models", "list", kind)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.slow
def test_list_prints_json_for_programs():
    formats = json.loads(run("models", "list", "formats", "--json").stdout)
    assert {"voc", "coco", "csv", "folder"} <= {entry["name"] for entry in formats}


@pytest.mark.slow
def test_list_backbones_tells_which_have_weights():
    rows = {row["name"]: row["description"] for row in json.loads(run("models", "list", "backbones", "--json").stdout)}
    assert rows["resnet50"] == "timm, with pretrained weights"
    assert rows["botnet50ts_256"] == "timm, no pretrained weights"


@pytest.mark.slow
def test_a_library_error_is_one_red_sentence_and_exit_code_2():
    result = run("data", "check", "vco:nowhere")
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "did you mean 'voc'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_path_that_a_library_cannot_open_is_told(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "labels.csv").write_text("image,labels\na.jpg,cat\n")
    result = run("data", "check", folder / "labels.csv")
    assert result.returncode == 2
    assert "is not valid UTF-8; rename it" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_debug_shows_the_traceback():
    result = run("--debug", "data", "check", "vco:nowhere")
    assert result.returncode != 0
    assert "Traceback" in result.stderr


@pytest.mark.slow
def test_completion_knows_the_commands():
    environment = os.environ | {"_MANYLABEL_COMPLETE": "complete_bash", "COMP_WORDS": "manylabel mo", "COMP_CWORD": "1"}
    assert "models" in run(env=environment).stdout
