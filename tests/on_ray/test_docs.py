"""What docs/how-to/many-machines.md says, on a real Ray: the snippets that tests/test_docs.py leaves out."""

import json
import shlex
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from manylabel.cli.main import app
from reader_folder import ADDRESS, FENCE, ROOT, commands_of, furnish, text_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # on a busy machine Ray needs more than one attempt to start
    pytest.mark.filterwarnings("default"),  # Ray warns of its own code
]

TEXT = text_of(ROOT / "docs" / "how-to" / "many-machines.md")
COMMANDS = [words for language, block in FENCE.findall(TEXT) if language == "bash" for words in commands_of(block)]
SHORTER = ["--epochs", "1", "--teacher-epochs", "1"]


@pytest.fixture(autouse=True)
def reader(tmp_path, monkeypatch):
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)


def on_this_machine(words):
    """Return a command as a Ray of two CPUs can run it, with no more replicas, soon."""
    words = ["2" if before == "--replicas" else word for before, word in zip(["", *words], words, strict=False)]
    return [*words[1:], *(SHORTER if words[1] == "train" else [])]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "manylabel"], ids=shlex.join)
def test_commands(words, local_ray):
    result = CliRunner().invoke(app, on_this_machine(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_python(local_ray, capsys):
    for language, block in FENCE.findall(TEXT):
        if language == "python":
            exec(compile(block, "snippet", "exec"), {})
    assert [eval(line)["image"] for line in capsys.readouterr().out.splitlines()] == ["a.jpg", "b.jpg"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_questions_to_the_server(local_ray, free_port):
    from examples.serve_on_ray import serving  # Ray Serve warns when it is imported

    asked = [words for words in COMMANDS if words[0] == "curl"]
    with serving("my-model", replicas=1, port=free_port) as address:
        for words in asked:
            words = [word.replace(ADDRESS, address) for word in words]
            answer = subprocess.run([*words, "--silent", "--show-error"], capture_output=True, text=True, check=True)
            assert json.loads(answer.stdout)["images"][0]["tags"]
    assert asked
