"""The examples run as they stand, but for the port of a server, which may be taken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.timeout(900)  # the demo trains a model
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(example, free_port, tmp_path):
    flags = ["--port", str(free_port)] if example.stem.startswith("serve") else []
    command = [sys.executable, str(example), *flags]
    environment = os.environ | {"RAY_worker_niceness": "0"}  # else they would never start on a busy machine
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
