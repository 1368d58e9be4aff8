"""Speed of scoring a dataset, as evaluate, tune and report do, compared with a plain torch loop.

Both are interleaved in one process, so the ratio also holds on a busy machine. The plain loop is the classifier as
trained, over an `ImageLoader` that decodes in the main process.

    python benchmarks/scoring_speed.py --data coco:FOLDER,split=val2014 --images 200
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from manylabel import Classifier
from manylabel.data import ImageDataset, ImageLoader, eval_transform, load
from manylabel.evaluation import score
from manylabel.inference import open_engine


@torch.inference_mode()
def plain_scores(model: Classifier, dataset: ImageDataset) -> np.ndarray:
    """Score by a loop over batches."""
    loader = ImageLoader(dataset, transform=eval_transform(model.input_spec), max_bad_fraction=1)
    return torch.cat([model.scores(model(batch.images)) for batch in loader]).numpy()


def main() -> None:
    """Print images per second of both ways, and the median ratio of rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:everyday", help="a model's folder or builtin:NAME")
    parser.add_argument("--data", required=True, help="a dataset whose labels the model has, such as coco:FOLDER")
    parser.add_argument("--images", type=int, default=200, help="number of images")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way is run")
    arguments = parser.parse_args()
    dataset = load(arguments.data)
    dataset = dataset.subset(np.arange(min(arguments.images, len(dataset))))
    model = Classifier.from_pretrained(arguments.model).eval()
    engine = open_engine(arguments.model, engine="onnx", notify=print)
    plain, ours = [], []
    for _ in range(arguments.rounds):
        start = time.perf_counter()
        expected = plain_scores(model, dataset)
        middle = time.perf_counter()
        found = score(engine, dataset, common_labels=True, max_bad_fraction=1.0)
        plain.append(middle - start)
        ours.append(time.perf_counter() - middle)
    columns = [model.labels.index(name) for name in found.labels]
    difference = float(np.abs(found.scores.numpy() - expected[:, columns]).max())
    for name, seconds in (("plain torch loop", plain), ("engine of predict", ours)):
        print(f"{name}: {len(dataset) / statistics.median(seconds):.1f} images/s")
    ratios = [before / after for before, after in zip(plain, ours, strict=True)]
    spread = f"{min(ratios):.1f} to {max(ratios):.1f} in {len(ratios)} rounds"
    print(f"{statistics.median(ratios):.1f} times as fast ({spread}), {torch.get_num_threads()} threads")
    print(f"largest difference of a score: {difference:.1e}")


if __name__ == "__main__":
    main()
