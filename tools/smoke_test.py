"""What a newly installed manylabel must be able to do: python tools/smoke_test.py, in a folder that may be written to.

It needs the package with the extra 'train' and nothing of this repository, so that `make package` can run it in an
empty environment.
"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from manylabel import Classifier
from manylabel.builtin import sample_photos

COMMANDS = (
    "--version",
    "predict photos --out tags.jsonl",
    "data scenes --out scenes --num-images 40",
    "data check csv:scenes/labels.csv",
    "train csv:scenes/labels.csv --epochs 1 --views 1 --out run",
    "evaluate csv:scenes/labels.csv --model run --html evaluation.html",
    "report run --out report.html",
)


def main() -> None:
    """Tag photos, train, judge and report."""
    print(", ".join(f"{name} {version(name)}" for name in ("manylabel", "torch", "timm", "lightning", "numpy")))
    found = Classifier.from_pretrained("builtin:everyday").predict(sample_photos()).top(1)
    if [tags[0].label for tags in found] != ["person", "cat", "cup"]:
        sys.exit(f"the sample photos show a person, a cat and a cup; found {found}")
    Path("photos").mkdir()
    for photo in sample_photos():
        (Path("photos") / photo.name).write_bytes(photo.read_bytes())
    for command in COMMANDS:
        print(f"$ manylabel {command}", flush=True)
        subprocess.run([sys.executable, "-m", "manylabel", *command.split()], check=True)
    if "cat" not in Path("tags.jsonl").read_text(encoding="utf-8"):
        sys.exit("tags.jsonl does not name the cat")


if __name__ == "__main__":
    main()
