"""Train on images of which only one tag each was written down, and evaluate on images with all of theirs.

    python examples/incomplete_tags.py

The first model counts a tag that is not listed as absent; the second, the default for such data, keeps its score
uncertain.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import manylabel
from manylabel import data
from manylabel.evaluation import compute_metrics, score
from manylabel.targets import Targets


def one_tag_each(dataset: data.ImageDataset) -> data.ImageDataset:
    """Return the dataset with one tag of each image, drawn at random."""
    generator = np.random.default_rng(0)
    tags = [list(map(str, generator.permutation(dataset.labels_of(index))[:1])) for index in range(len(dataset))]
    return replace(dataset, targets=Targets.from_lists(tags, labels=dataset.labels))


def main() -> None:
    """Train both models, and print their mAP."""
    train, val = one_tag_each(data.scenes(400, split="train")), data.scenes(160, split="val")
    images = data.load(train, tags="incomplete")
    for loss in ("asymmetric", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            model = manylabel.train(
                images, val=val, head="linear", loss=loss, epochs=40, views=1, out=out, progress=False
            )
            print(f"{loss}: mAP {compute_metrics(score(model, val))['mAP']:.3f}")


if __name__ == "__main__":
    main()
