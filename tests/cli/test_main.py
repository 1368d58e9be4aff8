import json
import os
import re
import subprocess
import sys

import pytest

import manylabel


def run(*arguments, **settings):
    command = [sys.executable, "-m", "manylabel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **settings)


def test_help_tells_a_newcomer_where_to_start():
    result = run("--help")
    assert result.returncode == 0
    assert "Multi-label image classification" in result.stdout
    assert "manylabel data check" in result.stdout


def test_commands_are_listed_in_the_order_of_their_use():
    listed = [line.split()[1] for line in run("--help").stdout.splitlines() if re.match(r"│ [a-z]+ ", line)]
    order = ["data", "train", "evaluate", "tune", "predict", "explain", "serve", "export", "compare", "report", "runs"]
    assert listed[: len(order)] == order


def test_version():
    assert run("--version").stdout.strip() == f"manylabel {manylabel.__version__}"


@pytest.mark.parametrize("kind", ["heads", "backbones", "recipes", "formats"])
@pytest.mark.slow
def test_list_answers_for_every_kind(kind):
    result = run("list", kind)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.slow
def test_list_prints_json_for_programs():
    formats = json.loads(run("list", "formats", "--json").stdout)
    assert {"voc", "coco", "csv", "folder"} <= {entry["name"] for entry in formats}


@pytest.mark.slow
def test_a_library_error_is_one_red_sentence_and_exit_code_2():
    result = run("data", "check", "vco:nowhere")
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "did you mean 'voc'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_debug_shows_the_traceback():
    result = run("--debug", "data", "check", "vco:nowhere")
    assert result.returncode != 0
    assert "Traceback" in result.stderr


def test_completion_knows_the_commands():
    environment = os.environ | {"_MANYLABEL_COMPLETE": "complete_bash", "COMP_WORDS": "manylabel li", "COMP_CWORD": "1"}
    assert "list" in run(env=environment).stdout
