"""Speed of tagging images, compared with a plain loop and a DataLoader.

    python benchmarks/predict.py --data voc:VOCdevkit/VOC2012,split=train --model MODEL --images 200

The plain loop is the common way: Pillow opens an image, timm's transform prepares it, torch runs a batch of one.
The DataLoader has the same transform, as many workers and the same batch size as ours. All three take turns, each with
the same number of threads; a round of ours and of the DataLoader includes the start of its workers. Also compared: the
model alone, in torch and in onnxruntime.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from manylabel import Classifier
from manylabel.data import load
from manylabel.engine import Engine
from manylabel.images import prepare
from manylabel.inference import open_engine, predict_stream

Tags = list[frozenset[str]]


class Opened(Dataset[Tensor]):
    """Images as most code opens them."""

    def __init__(self, names: Sequence[str], transform: Callable[[Image.Image], Tensor]) -> None:
        self.names, self.transform = names, transform

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Tensor:
        with Image.open(self.names[index]) as image:
            return self.transform(image.convert("RGB"))


def timm_transform(model: Classifier) -> Callable[[Image.Image], Tensor]:
    """Return timm's transform for evaluation, with the settings of the model."""
    spec = model.input_spec
    return create_transform(
        input_size=(3, *spec.size),
        interpolation=spec.interpolation,
        mean=spec.mean,
        std=spec.std,
        crop_pct=spec.crop_fraction,
        crop_mode="squash" if spec.resize == "squash" else "center",
    )


def written(data: str, count: int, folder: Path) -> list[str]:
    """Return files of the first images of a dataset; drawn ones are written."""
    dataset = load(data)
    names = []
    for index in range(min(count, len(dataset))):
        image = dataset.images[index]
        path = folder / f"{index}.jpg" if isinstance(image, bytes) else image
        if isinstance(image, bytes):
            path.write_bytes(image)
        names.append(str(path))
    return names


def named(model: Classifier, scores: Tensor) -> Tags:
    """Return the tags of each image at the model's own thresholds."""
    limits = torch.tensor(model.thresholds or [0.5] * len(model.labels))
    return [frozenset(model.labels[place] for place in row.nonzero().flatten().tolist()) for row in scores >= limits]


@torch.inference_mode()
def plain_loop(model: Classifier, names: Sequence[str]) -> Tags:
    """Tag one image after the other."""
    transform = timm_transform(model)
    images = Opened(names, transform)
    return named(model, torch.cat([model.scores(model(images[place][None])) for place in range(len(names))]))


@torch.inference_mode()
def data_loader(model: Classifier, names: Sequence[str], *, workers: int, batch_size: int) -> Tags:
    """Tag batches that worker processes open."""
    loader = DataLoader(Opened(names, timm_transform(model)), batch_size=batch_size, num_workers=workers)
    return named(model, torch.cat([model.scores(model(images)) for images in loader]))


def ours(engine: Engine, names: Sequence[str], *, workers: int, batch_size: int) -> Tags:
    """Tag as `manylabel predict` does."""
    batches = predict_stream(engine, names, batch_size=batch_size, num_workers=workers)
    return [frozenset(tag.label for tag in image.tags) for batch in batches for image in batch]


def in_turns(ways: dict[str, Callable[[], object]], rounds: int) -> tuple[dict[str, list[float]], dict[str, object]]:
    """Run each way once per round; return seconds and the last results."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, object] = {}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.perf_counter()
            results[name] = run()
            seconds[name].append(time.perf_counter() - start)
    return seconds, results


def show(seconds: dict[str, list[float]], count: int, reference: str) -> None:
    """Print a line for each way; the ratio is the median of the rounds' own ratios."""
    for name, times in seconds.items():
        ratios = [slow / fast for slow, fast in zip(seconds[reference], times, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        speed = count / statistics.median(times)
        print(f"{name:34} {speed:7.1f} images/s  {statistics.median(ratios):5.2f} x {reference} ({spread})")


def main() -> None:
    """Time the ways in turn, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes:200")
    parser.add_argument("--model", default="builtin:everyday")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model: nn.Module = Classifier.from_pretrained(arguments.model)
    engine = open_engine(arguments.model, engine="onnx", num_threads=arguments.threads)
    settings = {"workers": arguments.workers, "batch_size": arguments.batch_size}
    with tempfile.TemporaryDirectory() as folder:
        names = written(arguments.data, arguments.images, Path(folder))
        ways = {
            "plain loop": lambda: plain_loop(model, names),
            "DataLoader": lambda: data_loader(model, names, **settings),
            "ours": lambda: ours(engine, names, **settings),
        }
        seconds, results = in_turns(ways, arguments.rounds)
        pixels = np.stack([prepare(name, engine.spec.input_spec) for name in names[: arguments.batch_size]])
    print(f"{len(names)} images of {arguments.data}, {arguments.threads} threads, {settings}")
    for reference in ("plain loop", "DataLoader"):
        show({name: seconds[name] for name in (reference, "ours")}, len(names), reference)
    same = statistics.mean(
        first == second for first, second in zip(results["plain loop"], results["ours"], strict=True)
    )
    print(f"{100 * same:.1f} % of the images have the same tags as from the plain loop")
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    with torch.inference_mode():
        alone = {"torch, the model": lambda: model(images), "onnxruntime": lambda: engine.scores(pixels)}
        seconds, _ = in_turns(alone, 2 * arguments.rounds)
    show(seconds, len(pixels), "torch, the model")


if __name__ == "__main__":
    main()
