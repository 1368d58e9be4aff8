"""Train on images in which four labels are rare, in random order and with rare labels drawn as often as others.

    python examples/rare_labels.py

Prints the mAP of the rare labels and of the others, on images in which all are frequent.
"""

import tempfile
from pathlib import Path

import numpy as np

import manylabel
from manylabel import data
from manylabel.evaluation import score
from manylabel.metrics import mean_average_precision

NUM_RARE, NUM_IMAGES = 4, 5


def make_rare(dataset: data.ImageDataset) -> data.ImageDataset:
    """Return the dataset with few images of the first labels."""
    values, _ = dataset.targets.dense()
    has_rare = values[:, :NUM_RARE].any(axis=1)
    few = [np.flatnonzero(values[:, label])[:NUM_IMAGES] for label in range(NUM_RARE)]
    return dataset.subset(np.union1d(np.flatnonzero(~has_rare), np.concatenate(few)))


def main() -> None:
    """Train both models, and print their mAP."""
    train, val = make_rare(data.scenes(300, split="train")), data.scenes(300, split="val")
    print("images of the rare labels:", train.targets.positives[:NUM_RARE].tolist())
    for sampler in ("shuffle", "class_aware"):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            model = manylabel.train(
                train, val=val, head="linear", sampler=sampler, epochs=15, views=1, out=out, progress=False
            )
            found = score(model, val)
            rare, others = (
                float(mean_average_precision(found.scores[:, part], found.targets[:, part]))
                for part in (slice(NUM_RARE), slice(NUM_RARE, None))
            )
            print(f"{sampler}: mAP {rare:.3f} of the rare labels, {others:.3f} of the others")


if __name__ == "__main__":
    main()
