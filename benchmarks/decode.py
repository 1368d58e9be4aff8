"""Decode JPEG files into model inputs, compared with plain Pillow: python benchmarks/decode.py.

Photo-like JPEG files of 1600 x 1200 become normalised tensors of 224 x 224, in one thread, in three ways: with
reduced-scale decoding (ours), ours without it, and the common way (Pillow opens, converts and resizes). The ways are
interleaved file by file; prints medians and ratios.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from manylabel.data.transforms import eval_transform, train_transform
from manylabel.images import decode
from manylabel.types import InputSpec


def draw_photo(generator: np.random.Generator, width: int, height: int) -> Image.Image:
    """Return noise of many scales, whose JPEG file is about as large as that of a photo."""
    layers = [
        np.asarray(
            Image.fromarray(
                generator.integers(0, 256, (height // cell + 1, width // cell + 1, 3), dtype=np.uint8)
            ).resize((width, height), Image.Resampling.BICUBIC)
        ).astype(np.float32)
        for cell in (4, 16, 64, 256)
    ]
    weights = np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32)
    return Image.fromarray(np.tensordot(weights, np.stack(layers), axes=1).clip(0, 255).astype(np.uint8))


def plain_pillow(spec: InputSpec) -> Callable[[Path], Tensor]:
    """Return what most code does: open, convert, resize, to float, normalise."""
    mean, std = torch.tensor(spec.mean)[:, None, None], torch.tensor(spec.std)[:, None, None]

    def load(path: Path) -> Tensor:
        with Image.open(path) as file:
            image = file.convert("RGB").resize(spec.size[::-1], Image.Resampling.BICUBIC)
        return (torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255 - mean) / std

    return load


def main() -> None:
    """Draw the files, time the ways in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--height", type=int, default=1200)
    parser.add_argument("--size", type=int, default=224)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    spec = InputSpec(size=(arguments.size, arguments.size))
    evaluate, train = eval_transform(spec), train_transform(spec)
    ways: dict[str, Callable[[Path], Tensor]] = {
        "plain Pillow": plain_pillow(spec),
        "ours, whole image": lambda path: evaluate(decode(path)),
        "ours": lambda path: evaluate(decode(path, at_least=evaluate.at_least)),
        "ours, training recipe": lambda path: train(decode(path, at_least=train.at_least)),
    }
    generator = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jpg" for number in range(arguments.images)]
        for path in paths:
            draw_photo(generator, arguments.width, arguments.height).save(path, quality=90)
        kilobytes = statistics.mean(path.stat().st_size for path in paths) / 1000
        for _ in range(arguments.rounds):
            for path in paths:
                for name, load in ways.items():
                    start = time.perf_counter()
                    load(path)
                    seconds[name].append(time.perf_counter() - start)
        whole, reduced = ways["ours, whole image"](paths[0]), ways["ours"](paths[0])
    print(f"{arguments.width} x {arguments.height} JPEG, {kilobytes:.0f} kB, to {arguments.size} x {arguments.size}")
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        low, high = np.percentile(seconds[name], [25, 75])
        ratio = medians["plain Pillow"] / median
        print(
            f"{name:24} {1000 * median:7.1f} ms ({1000 * low:.1f} to {1000 * high:.1f})   {ratio:5.2f} x plain Pillow"
        )
    levels = 255 * torch.tensor(spec.std)[:, None, None] * (whole - reduced).abs()
    print(f"reduced scale changes the pixels by {levels.mean():.2f} of 255 on average")


if __name__ == "__main__":
    main()
