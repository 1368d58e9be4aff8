"""Run the steps of the Dockerfile in an empty directory tree, where there is no container engine.

    python tools/try_dockerfile.py MODEL.onnx

Folders of the image become folders of a temporary tree, and the base image is this Python. The server is started with
the image's command and environment, as its user if this process is root and other users can run this Python; then its
health check must succeed, an image must get an answer, and SIGTERM must stop it.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("/build", "/models", "/opt", "/tmp")  # those of the image that the steps name
SECONDS = 120


def main() -> None:
    """Build, start, check, ask and stop."""
    model = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary).resolve()
        tree.chmod(0o755)
        for folder in FOLDERS:
            (tree / folder[1:]).mkdir()
        (tree / "tmp").chmod(0o777)
        shutil.copy(model, tree / "models" / "model.onnx")
        image = build(tree)
        size = sum(path.stat().st_size for path in (tree / "opt").rglob("*") if path.is_file())
        print(f"built {size / 1e6:,.0f} MB in /opt")
        serve(tree, image)


def instructions() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Dockerfile."""
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest


def build(tree: Path) -> dict[str, str]:
    """Run the steps that make files; return the instructions that describe the running container."""
    image = {}
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            for source in sources:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, tree / "build" / source)
        elif name == "RUN" and not rest.startswith("useradd"):  # it would change this machine
            words = [inside(word, tree) for word in shlex.split(rest)]
            words[0] = sys.executable if words[0] == "python" else words[0]
            print("$", rest, flush=True)
            subprocess.run(words, cwd=tree / "build", check=True)
        elif name not in ("FROM", "WORKDIR", "COPY", "RUN"):
            image[name] = rest
    return image


def serve(tree: Path, image: dict[str, str]) -> None:
    """Start the server, run its health check, send an image, and stop it."""
    environment = dict(pair.split("=", 1) for pair in inside(image["ENV"], tree).split())
    can_run = all(folder.stat().st_mode & 0o001 for folder in Path(sys.executable).resolve().parents)
    user = int(image["USER"]) if os.getuid() == 0 and can_run else None
    if os.getuid() == 0 and not can_run:
        print(f"as root: other users cannot run {sys.executable}")
    command = [inside(word, tree) for word in json.loads(image["ENTRYPOINT"]) + json.loads(image["CMD"])]
    check = [inside(word, tree) for word in json.loads(image["HEALTHCHECK"].partition("CMD ")[2])]
    photo = next((ROOT / "src").rglob("sample_photos/*.jpg")).read_bytes()
    start = time.monotonic()
    program = tree / "opt" / "manylabel" / "bin"
    server = subprocess.Popen(command, env=environment, cwd=tree / "tmp", user=user, executable=program / command[0])
    try:
        while subprocess.run(check, env=environment, executable=program / check[0], capture_output=True).returncode:
            if server.poll() is not None or time.monotonic() - start > SECONDS:
                sys.exit("the health check never succeeded")
            time.sleep(0.5)
        print(f"healthy after {time.monotonic() - start:.1f} s")
        headers = {"Content-Type": "image/jpeg"}
        request = urllib.request.Request("http://127.0.0.1:8000/v1/predict", photo, headers)
        print(urllib.request.urlopen(request, timeout=SECONDS).read().decode())
    finally:
        server.terminate()
    if server.wait(SECONDS) not in (0, -signal.SIGTERM):  # uvicorn raises the signal again when it has finished
        sys.exit(f"SIGTERM stopped the server with code {server.returncode}")


def inside(text: str, tree: Path) -> str:
    """Move the folders of the image into the tree."""
    return re.sub(rf"(?<![^=:])({'|'.join(FOLDERS)})\b", rf"{tree}\1", text)


if __name__ == "__main__":
    main()
