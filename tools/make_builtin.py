"""Make a model that ships inside the package of a trained run: its head in float16, and a model card.

    python tools/make_builtin.py RUN NAME --held-out "mAP 68.1 on 4,925 images" --trained-on "COCO train"

RUN is the folder of a run, or of a model, whose backbone is frozen and available without it (``offline:...``). Tune it
first (``manylabel tune``): thresholds and calibration go in as they are. NAME is what follows ``builtin:``.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from manylabel import Classifier
from manylabel.builtin import models, sample_photos
from manylabel.errors import ManyLabelError
from manylabel.storage import write_text

MOST_BYTES = 5_000_000
MOST_DIFFERENCE = 0.01  # of a score, through the rounding of weights

CARD = """# builtin:{name}

{count} labels: {head} on the frozen backbone `{backbone}`, {height} x {width} pixels.

| | |
|---|---|
| trained on | {trained_on} |
| held-out score | {held_out} |
| command | `{command}` |
| thresholds | {thresholds} |
| calibration | {calibration} |
| weights | the head alone, float16, {megabytes:.1f} MB; scores differ by at most {difference:.1e} from float32 |

Weights only: no image of the training data is in this folder.

Labels: {labels}
"""


def main() -> None:
    """Write the folder, check it, and write its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--held-out", required=True, help="the score, and on what")
    parser.add_argument("--trained-on", required=True, help="the data, in words")
    parser.add_argument("--command", help="training command (default: the one that the run recorded)")
    parser.add_argument("--folder", type=Path, default=models.FOLDER, help="where builtin models are")
    parser.add_argument("--overwrite", action="store_true")
    arguments = parser.parse_args()
    try:
        print(make(arguments))
    except ManyLabelError as error:
        sys.exit(f"Error: {error}")


def make(arguments: argparse.Namespace) -> str:
    """Write the folder and return its card."""
    classifier = Classifier.from_pretrained(arguments.run)
    folder = arguments.folder / arguments.name
    photos = sample_photos()
    with TemporaryDirectory() as temporary:
        tried = classifier.save_pretrained(Path(temporary) / "model", include_backbone=False, half=True)
        num_bytes = sum(file.stat().st_size for file in tried.iterdir())
        before, after = (model.predict(photos).scores for model in (classifier, Classifier.from_pretrained(tried)))
    difference = float(abs(before - after).max())
    if num_bytes > MOST_BYTES or difference > MOST_DIFFERENCE:
        sys.exit(f"{folder} has {num_bytes:,} bytes and scores off by {difference:.1e}; not fit to ship")
    classifier.save_pretrained(folder, include_backbone=False, half=True, overwrite=arguments.overwrite)
    recorded = arguments.run / "command.txt"
    command = recorded.read_text(encoding="utf-8").strip() if recorded.is_file() else "not recorded"
    height, width = classifier.input_spec.size
    card = CARD.format(
        name=arguments.name,
        count=len(classifier.labels),
        head=type(classifier.head).__name__,
        backbone=classifier.backbone.name,
        height=height,
        width=width,
        trained_on=arguments.trained_on,
        held_out=arguments.held_out,
        command=arguments.command or command,
        thresholds="0.5 for all labels" if classifier.thresholds is None else "tuned, one for each label",
        calibration="none" if classifier.calibration is None else classifier.calibration.method,
        megabytes=num_bytes / 1e6,
        difference=difference,
        labels=", ".join(classifier.labels),
    )
    write_text(folder / "README.md", card, overwrite=True)
    return card


if __name__ == "__main__":
    main()
