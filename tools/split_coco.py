"""Split COCO's annotations into three files: images to fit a model, to choose between models, and to report the result.

python tools/split_coco.py coco/annotations/instances_train2014.json --out coco/annotations
"""

import argparse
import json
import random
from pathlib import Path

HELD_OUT = 4_000  # images to choose by, and as many others to report on
SEED = 2026


def main() -> None:
    """Write ``instances_fit.json``, ``instances_choose.json`` and ``instances_report.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    content = json.loads(arguments.annotations.read_bytes())
    ids = sorted(image["id"] for image in content["images"])
    random.Random(SEED).shuffle(ids)
    parts = {"choose": ids[:HELD_OUT], "report": ids[HELD_OUT : 2 * HELD_OUT], "fit": ids[2 * HELD_OUT :]}
    for name, part in parts.items():
        chosen = set(part)
        written = content | {
            "images": [image for image in content["images"] if image["id"] in chosen],
            "annotations": [each for each in content["annotations"] if each["image_id"] in chosen],
        }
        (arguments.out / f"instances_{name}.json").write_text(json.dumps(written), encoding="utf-8")
        print(f"{name}: {len(part):,} images")


if __name__ == "__main__":
    main()
