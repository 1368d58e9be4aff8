"""Kills while a file or folder is put in its place: the old one or the new one is there, whole."""

import os
import signal
import subprocess
import sys

import pytest

from manylabel.errors import OutputExistsError
from manylabel.storage import replacing_folder, write_text

KILLED = """
import sys
from pathlib import Path
import pytest
from faults.disk import die_at_move
from manylabel.storage import replacing_folder, write_text
folder, number, before = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "before"
die_at_move(pytest.MonkeyPatch(), number, before=before)
if sys.argv[4] == "file":
    write_text(folder / "a.txt", "new", overwrite=True)
else:
    with replacing_folder(folder / "model", overwrite=True) as temporary:
        (temporary / "a.txt").write_text("new")
"""

pytestmark = pytest.mark.slow


def kill(folder, number, when, kind):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, folder, str(number), when, kind], env=environment)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("when", "content"), [("before", "old"), ("after", "new")])
def test_a_file_is_the_old_one_or_the_new_one(tmp_path, when, content):
    write_text(tmp_path / "a.txt", "old")
    kill(tmp_path, 1, when, "file")
    assert (tmp_path / "a.txt").read_text() == content


@pytest.mark.parametrize(
    ("number", "when", "content"),
    [(1, "before", "old"), (1, "after", "old"), (2, "before", "old"), (2, "after", "new")],
)
def test_a_folder_is_the_old_one_or_the_new_one_at_the_next_call(tmp_path, number, when, content):
    write_text(tmp_path / "model" / "a.txt", "old")
    kill(tmp_path, number, when, "folder")
    with pytest.raises(OutputExistsError), replacing_folder(tmp_path / "model"):
        pass
    assert (tmp_path / "model" / "a.txt").read_text() == content
    with replacing_folder(tmp_path / "model", overwrite=True) as temporary:
        (temporary / "a.txt").write_text("newest")
    assert (tmp_path / "model" / "a.txt").read_text() == "newest"
