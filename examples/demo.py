"""Tag three photos, then generate a dataset, train a model on it and write a report: `make demo`."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from manylabel.builtin import sample_photos

FOLDER = Path("demo")  # overwritten by each run

COMMANDS = f"""
predict {FOLDER}/photos
data scenes --out {FOLDER}/scenes --num-images 300 --unknown 0.05 --overwrite
data check csv:{FOLDER}/scenes/labels.csv --html {FOLDER}/check.html --overwrite
train csv:{FOLDER}/scenes/labels.csv --out {FOLDER}/run --overwrite
report {FOLDER}/run --out {FOLDER}/report.html --overwrite
"""


def main() -> None:
    """Run the demo."""
    photos = FOLDER / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    for photo in sample_photos():
        shutil.copy(photo, photos)
    for command in COMMANDS.strip().splitlines():
        print(f"\n$ manylabel {command}", flush=True)
        subprocess.run([sys.executable, "-m", "manylabel", *shlex.split(command)], check=True)
    print(f"\nOpen the report in a browser: {(FOLDER / 'report.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
