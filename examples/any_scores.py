"""Turn similarities, as of CLIP, into tags: tune thresholds on labelled images, apply them to others."""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from manylabel import data
from manylabel.tuning import ScoreTuning, tune_scores


def write_similarities(dataset: data.ImageDataset, path: Path, *, seed: int) -> Path:
    """Write what a program might give: higher where a label is present, in a range of its own for each label."""
    values, _ = dataset.targets.dense()
    noise = np.random.default_rng(seed).normal(0, 0.02, values.shape)
    scores = 0.18 + 0.05 * values + np.linspace(0, 0.08, len(dataset.labels)) + noise
    columns = dict(zip(dataset.labels, scores.T, strict=True))
    pl.DataFrame({"image": [dataset.images.name(row) for row in range(len(dataset))], **columns}).write_csv(path)
    return path


def main() -> None:
    """Run the example."""
    folder = Path(tempfile.mkdtemp())
    labelled, others = data.scenes(300, split="train"), data.scenes(300, split="val")
    scores = write_similarities(labelled, folder / "clip.csv", seed=0)
    result, tuning = tune_scores(scores, labelled, raw=True)
    before, after = result.before.metrics["CF1"], result.after.metrics["CF1"]
    print(f"CF1 with one threshold for all labels {before:.3f}, with one each {after:.3f} (cross-validated)")
    tuning.write(folder / "tuning.json")

    tuning = ScoreTuning.read(folder / "tuning.json")
    predictions = tuning.apply_file(write_similarities(others, folder / "more.csv", seed=1))
    print(predictions[:3])


if __name__ == "__main__":
    main()
