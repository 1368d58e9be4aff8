"""The snippets of the docs run, page by page, in a folder with small stand-ins for what they name.

Training is shortened and fine-tuning only planned (`SHORTER`), what needs Ray has its own tests (`ON_RAY`), and of
`python SCRIPT` only the flags are looked up.
"""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manylabel import data
from manylabel.cli.main import app
from manylabel.server import ServedModel, create_app
from reader_folder import ADDRESS, FENCE, ROOT, commands_of, furnish, text_of
from server_apps import listening

PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if FENCE.search(page.read_text())
]
ON_RAY = ("--executor ray", "tag_with_ray")  # tests/on_ray/test_docs.py runs them
DOWNLOADS = ("--model clip:",)  # tests/test_clip.py runs it with a model on disk
SHORTER = {
    "probe": "--epochs 1 --limit 16 --views 1",
    "representation_mixup": "--epochs 1 --limit 16",
    "finetune": "--epochs 1 --limit 4 --no-pretrained --image-size 64 --devices 1 --workers 0 --dry-run",
    "self_distillation": "--epochs 1 --teacher-epochs 1 --executor sequential",
    "zero_shot": "--epochs 1",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    """A folder with everything that the pages name."""
    root = tmp_path_factory.mktemp("reader")
    furnish(root)
    return root


@pytest.fixture
def reader(furnished, tmp_path, monkeypatch):
    """A copy of that folder to work in; links to its files, as copies for all pages would take gigabytes."""
    folder = tmp_path / "reader"
    shutil.copytree(furnished, folder, symlinks=True, copy_function=os.link)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("manylabel.server.run_server", lambda app, **settings: None)
    return folder


def run_manylabel(words, *, stdin=None):
    """Call the command line in this process, which saves the seconds that a new one takes to start."""
    if words[0] == "train":
        recipe = words[words.index("--recipe") + 1] if "--recipe" in words else "probe"
        words = [*words, *SHORTER[recipe].split()]
        out = words[words.index("--out") + 1] if "--out" in words else f"runs/{recipe}"
        shutil.rmtree(out, ignore_errors=True)  # the stand-in of a run that this page makes itself
    if words[:2] == ["cache", "remove"] and not words[2].startswith("--"):
        words[2] = next(Path(os.environ["MANYLABEL_CACHE"], "features").glob("?" * 16)).name  # keys differ
    result = CliRunner().invoke(app, words, input=stdin)
    assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}\n{result.exception!r}"


def run_command(words):
    """Run one command of a block."""
    match words:
        case ["manylabel", *rest] | [
            _,
            "rand",
            "-hex",
            "24)",
            "manylabel",
            *rest,
        ]:  # the latter: a key, made on the spot
            run_manylabel(rest)
        case _ if "|" in words:
            pipe = words.index("|")
            found = subprocess.run(words[:pipe], capture_output=True, text=True, check=True)
            assert words[pipe + 1] == "manylabel"
            run_manylabel(words[pipe + 2 :], stdin=found.stdout)
        case ["pip", "install", "."]:
            pass
        case ["pip", "install", what]:
            extras = re.fullmatch(r"\.\[(.+)\]", what)[1]
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            assert set(extras.split(",")) <= set(project["optional-dependencies"])
        case ["python", "-m", module, *rest] if module.startswith("benchmarks."):
            run_command(["python", f"{module.replace('.', '/')}.py", *rest])
        case ["python", script, *rest]:  # long; the examples run elsewhere
            text = (ROOT / script).read_text(encoding="utf-8")
            assert all(flag.split("=")[0] in text for flag in rest if flag.startswith("--"))
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        case ["curl", *_] if shutil.which("curl"):
            answer = subprocess.run([*words, "--silent", "--show-error"], capture_output=True, text=True, check=True)
            assert '"images":[{"name"' in answer.stdout.replace(" ", ""), answer.stdout
        case ["curl", *_]:
            pass
        case _:
            pytest.fail(f"nobody knows how to run {words}")


def is_run(snippet):
    return not any(part in snippet for part in (*ON_RAY, *DOWNLOADS))


@pytest.mark.filterwarnings("default")  # libraries under the commands warn of themselves; their own tests are strict
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).with_suffix("").as_posix())
def test_every_snippet_of_a_page_runs(page, reader):
    text = text_of(page)
    if ADDRESS in "".join(block for _, block in FENCE.findall(text) if "manylabel" not in block):
        with listening(create_app(ServedModel.open("my-model"))) as (address, _):
            run_page(text.replace(ADDRESS, address))
    else:
        run_page(text)


def run_page(text):
    names = {"__name__": "__main__", "dataset": data.scenes(20)}  # some pages go on with a dataset
    for language, block in FENCE.findall(text):
        if language == "python":
            if is_run(block):
                exec(compile(block, "snippet", "exec"), names)
            continue
        for words in commands_of(block):
            if is_run(shlex.join(words)):
                run_command(words)


@pytest.mark.parametrize("part", [*ON_RAY, *DOWNLOADS])
def test_what_is_left_out_is_still_there(part):
    assert any(part in page.read_text(encoding="utf-8") for page in PAGES)
