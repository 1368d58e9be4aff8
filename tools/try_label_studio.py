"""Run the loop of docs/how-to/label-next.md with a real Label Studio; `make annotators` sets up what it needs.

    python tools/try_label_studio.py PYTHON

The interpreter that runs this has label-studio, PYTHON has manylabel: Label Studio needs older versions of numpy and
OpenCV. Both servers listen on this machine only, and everything is written to a temporary folder.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from label_studio_sdk import LabelStudio
from label_studio_sdk.label_interface import LabelInterface

CHOICES = ("person", "Cat", "dining table", "spoon")
CONFIG = f"""<View><Image name="image" value="$image"/><Choices name="tags" toName="image" choice="multiple">
{"".join(f'<Choice value="{choice}"/>' for choice in CHOICES)}<Choice value="cup" alias="mug"/></Choices></View>"""
PHOTOS = {"astronaut.jpg": ["person"], "chelsea.jpg": ["Cat"], "coffee.jpg": ["mug", "dining table", "spoon"]}
KEY, TOKEN = "key-of-manylabel-serve", "0" * 40
SETTINGS = {
    "ML_BLOCK_LOCAL_IP": "false",
    "SSRF_PROTECTION_ENABLED": "false",
    "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
    "SENTRY_DSN": "",  # the rest keeps it from calling home, and lets a busy machine be slow
    "FRONTEND_SENTRY_DSN": "",
    "COLLECT_ANALYTICS": "false",
    "LATEST_VERSION_CHECK": "false",
    "ML_TIMEOUT_HEALTH": "60",
    "ML_TIMEOUT_SETUP": "60",
}
COPY_PHOTOS = """
import sys
from manylabel.builtin import sample_photos
for photo in sample_photos():
    with open(f"{sys.argv[1]}/my {photo.name}", "wb") as file:
        file.write(photo.read_bytes())
"""
READ_EXPORT = """
import json, sys
from manylabel.data import load
found = load(sys.argv[1])
values, known = found.targets.dense()
print(json.dumps({found.images.name(i): [values[i].tolist(), known[i].tolist()] for i in range(len(found))}))
if not all(found.images[index].is_file() for index in range(len(found))):
    sys.exit("the export's images were not found")
"""


def main() -> None:
    """Import tasks and uploads, connect the model, retrieve predictions, annotate, export, and read the export."""
    python = sys.argv[1]
    print(", ".join(f"{name} {version(name)}" for name in ("label-studio", "label-studio-sdk")), flush=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        root = Path(folder)
        photos = root / "photos" / "of me"
        photos.mkdir(parents=True)
        run(python, "-c", COPY_PHOTOS, str(photos))
        run(python, "-m", "manylabel", "predict", str(root / "photos"), "--out", str(root / "tasks.label_studio.json"))
        address, client, token = servers.enter_context(label_studio(root))
        model = servers.enter_context(manylabel(python, address, token))
        imported, uploaded = (
            client.projects.create(title=title, label_config=CONFIG).id for title in ("tasks", "uploads")
        )
        client.import_storage.local.create(project=imported, path=str(root / "photos"), use_blob_urls=True)
        tasks = json.loads((root / "tasks.label_studio.json").read_text(encoding="utf-8"))
        client.projects.import_tasks(imported, request=tasks)
        for photo in sorted(photos.iterdir()):
            upload(f"{address}/api/projects/{uploaded}/import", photo)
        for project in (imported, uploaded):
            predict(client, project, model)
        annotate(client, uploaded)
        export = b"".join(client.projects.exports.download_sync(uploaded, export_type="JSON"))
        (root / "export.json").write_bytes(export)
        found = json.loads(run(python, "-c", READ_EXPORT, f"label_studio:{root}/export.json,images={root}/photos"))
    # Cat, mug, person: the second photo's annotators disagree about the mug, the third was left blank.
    expected = {
        "of me/my astronaut.jpg": [[0, 0, 1], [1, 1, 1]],
        "of me/my chelsea.jpg": [[1, 0, 0], [1, 0, 1]],
        "of me/my coffee.jpg": [[0, 0, 0], [1, 1, 1]],
    }
    check("labels of the export", found, expected)


def predict(client: LabelStudio, project: int, address: str) -> None:
    """Connect the model, retrieve its predictions, and let the SDK validate them."""
    backend = client.ml.create(
        project=project, url=address, auth_method="BASIC_AUTH", basic_auth_user="any", basic_auth_pass=KEY
    )
    check("connection and its error", (backend.readable_state, backend.error_message), ("Connected", None))
    client.actions.create(
        id="retrieve_tasks_predictions", project=project, selected_items={"all": True, "excluded": []}
    )
    interface = LabelInterface(CONFIG)
    for task in client.tasks.list(project=project, fields="all"):
        (prediction,) = (each for each in task.predictions if each.model_version == "builtin:everyday")
        (photo,) = (name for name in PHOTOS if task.data["image"].endswith(name))
        check(f"choices of {task.data['image']}", prediction.result[0]["value"]["choices"], PHOTOS[photo])
        given = {"result": prediction.result, "score": prediction.score, "model_version": prediction.model_version}
        check("errors that the SDK finds", interface.validate_prediction(given, return_errors=True), [])


def annotate(client: LabelStudio, project: int) -> None:
    """Accept the first prediction, annotate the second task twice, skip the third and annotate it with nothing."""
    first, second, third = client.tasks.list(project=project, fields="all")
    client.annotations.create(first.id, result=first.predictions[0].result)
    for choices in (["Cat", "mug"], ["Cat"]):
        value = {"from_name": "tags", "to_name": "image", "type": "choices", "value": {"choices": choices}}
        client.annotations.create(second.id, result=[value])
    client.annotations.create(third.id, result=[], was_cancelled=True)
    client.annotations.create(third.id, result=[])


@contextmanager
def label_studio(root: Path) -> Iterator[tuple[str, LabelStudio, str]]:
    """Start Label Studio; yield its address, a client and a personal access token."""
    port = free_port()
    options = ["--data-dir", str(root / "label-studio"), "--internal-host", "127.0.0.1", "--port", str(port)]
    options += ["--username", "me@example.org", "--password", "a-pass-Word-1", "--user-token", TOKEN]
    command = [str(Path(sys.executable).with_name("label-studio")), "start", "--no-browser", *options]
    settings = {**SETTINGS, "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(root)}
    settings["XDG_DATA_HOME"] = str(root / "label-studio")  # it makes folders there before it reads --data-dir
    address = f"http://127.0.0.1:{port}"
    with server([*command, "--enable-legacy-api-token"], settings, f"{address}/health"):
        token = LabelStudio(base_url=address, api_key=TOKEN).tokens.create().token
        yield address, LabelStudio(base_url=address, api_key=token), token


@contextmanager
def manylabel(python: str, address: str, token: str) -> Iterator[str]:
    """Start `manylabel serve` with an API key; yield its address."""
    port = free_port()
    command = [python, "-m", "manylabel", "serve", "--port", str(port), "--label-studio", address]
    settings = {"MANYLABEL_API_KEY": KEY, "LABEL_STUDIO_API_KEY": token}
    with server(command, settings, f"http://127.0.0.1:{port}/readyz"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def server(command: list[str], settings: dict[str, str], ready: str) -> Iterator[None]:
    """Run a server until the block ends; it has 20 minutes to start, as Label Studio first builds its database."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        try:
            for _ in range(1200):
                try:
                    urllib.request.urlopen(ready, timeout=10).close()
                    break
                except OSError as error:
                    if process.poll() is not None:
                        raise RuntimeError(f"{command[0]} ended before it was ready") from error
                    time.sleep(1)
            yield
        except BaseException:
            log.seek(0)
            print(f"$ {' '.join(command)}\n{log.read()[-5000:]}", file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)


def upload(address: str, photo: Path) -> None:
    """Upload a photo as a browser does, which the SDK cannot."""
    start = f'--part\r\nContent-Disposition: form-data; name="file"; filename="{photo.name}"\r\n\r\n'
    headers = {"Authorization": f"Token {TOKEN}", "Content-Type": "multipart/form-data; boundary=part"}
    body = start.encode() + photo.read_bytes() + b"\r\n--part--\r\n"
    urllib.request.urlopen(urllib.request.Request(address, body, headers)).close()


def run(*command: str) -> str:
    """Run a command and return its output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def check(name: str, found: object, expected: object) -> None:
    """Print what was found, or stop if it is something else."""
    if found != expected:
        sys.exit(f"{name}: expected {expected}, found {found}")
    print(f"{name}: {found}", flush=True)


if __name__ == "__main__":
    main()
