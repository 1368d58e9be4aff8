"""The Dockerfile fits the tree; `tools/try_dockerfile.py` runs its steps."""

import json
import re
import tomllib

from fastapi.testclient import TestClient
from tools.try_dockerfile import ROOT, instructions

from manylabel.server import ServedModel, create_app

STEPS = list(instructions())
SAID = dict(STEPS)


def test_everything_copied_exists_and_is_not_ignored():
    sources = [word for name, rest in STEPS if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sources
    assert all((ROOT / source).exists() and f"!{source}" in ignored for source in sources)


def test_it_installs_an_extra_that_exists_and_no_torch():
    (extra,) = {found for _, rest in STEPS for found in re.findall(r"\.\[(\w+)\]", rest)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not [line for line in extras[extra] if line.startswith(("torch", "manylabel"))]


def test_the_server_is_not_root():
    names = [name for name, _ in STEPS]
    assert int(SAID["USER"]) > 0
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_the_health_check_asks_for_an_endpoint_without_a_key(colour_file):
    command = json.loads(SAID["HEALTHCHECK"].partition("CMD ")[2])
    (path,) = re.findall(rf"http://127\.0\.0\.1:{SAID['EXPOSE']}(/\w+)", command[-1])
    with TestClient(create_app(ServedModel.open(colour_file)), "http://localhost") as client:
        assert client.get(path).status_code == 200
