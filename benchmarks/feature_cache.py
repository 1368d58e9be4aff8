"""Speedup of cached features on a CPU: python benchmarks/feature_cache.py [--images 128] [--rounds 5].

First, EfficientNet-Lite0 at 224 px in onnxruntime and in torch (eager, channels_last), with one and two threads. Then
an epoch of a linear head on cached features and the same epoch with every image decoded and passed through the
backbone, on generated scenes with one thread. All are interleaved in one process; numbers are medians over the rounds,
ratios with their minimum and maximum.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from manylabel import data
from manylabel.backbone import Backbone
from manylabel.data.transforms import eval_transform
from manylabel.features import FeatureCache, FeatureLoader
from manylabel.features.runtime import OnnxBackbone
from manylabel.heads import LinearClassifier
from manylabel.losses import BinaryCrossEntropy
from manylabel.storage import write_text
from manylabel.types import InputSpec

RESULTS = Path(__file__).parent / "results" / "feature_cache.json"
BATCH_SIZE = 16


def seconds(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def take_turns(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each contestant in each round, after one round to warm up."""
    times = [{name: seconds(work) for name, work in contestants.items()} for _ in range(rounds + 1)][1:]
    return {name: [one[name] for one in times] for name in contestants}


def summary(times: dict[str, list[float]], *, fast: str, slow: str, images: int) -> dict[str, float]:
    """Return speeds in images a second, and how many times faster one is than the other."""
    ratios = [theirs / ours for theirs, ours in zip(times[slow], times[fast], strict=True)]
    speeds = {f"{name}_per_second": round(images / median(values), 1) for name, values in times.items()}
    spread = {"times_faster": median(ratios), "smallest": min(ratios), "largest": max(ratios)}
    return speeds | {name: round(value, 2) for name, value in spread.items()}


def compare_engines(backbone: Backbone, folder: Path, threads: int, rounds: int) -> dict[str, float | str]:
    """Compare onnxruntime with torch."""
    torch.set_num_threads(threads)
    images = torch.randn(BATCH_SIZE, 3, 224, 224)
    in_onnx = OnnxBackbone(backbone, folder / "backbone.onnx", size=(224, 224), num_threads=threads)
    eager, fused = backbone.to(memory_format=torch.channels_last), backbone.fuse(channels_last=True)
    pixels = images.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        contestants = {"onnx": lambda: in_onnx(images), "torch": lambda: eager(pixels), "fused": lambda: fused(pixels)}
        times = take_turns(contestants, rounds)
    return {"what": f"onnxruntime / torch, {threads} threads"} | summary(
        times, fast="onnx", slow="torch", images=BATCH_SIZE
    )


def train(head: nn.Module, batches: Iterable[tuple[list[Tensor], Tensor, Tensor]]) -> None:
    """Train a head for one epoch."""
    loss, optimizer = BinaryCrossEntropy(), torch.optim.SGD(head.parameters(), lr=0.01)
    for features, targets, known in batches:
        optimizer.zero_grad()
        loss(head(features), targets, known).backward()
        optimizer.step()


def compare_epochs(backbone: Backbone, root: Path, images: int, rounds: int) -> list[dict[str, float | str]]:
    """Compare an epoch on cached features, whole and pooled, with one through the backbone."""
    torch.set_num_threads(1)  # two threads that wait for each other suffer most from other work on the machine
    table = data.write_scenes(root / "scenes", images)
    dataset = data.load(f"csv:{table}")
    spec = InputSpec(mean=backbone.input_spec.mean, std=backbone.input_spec.std)
    head = LinearClassifier(backbone.channels[-1], len(dataset.labels))
    eager = backbone.to(memory_format=torch.channels_last)
    loader = data.ImageLoader(
        dataset, transform=eval_transform(spec), batch_size=BATCH_SIZE, shuffle=True, num_workers=1
    )

    def through_backbone() -> None:
        def batches() -> Iterable[tuple[list[Tensor], Tensor, Tensor]]:
            for batch in loader:
                with torch.no_grad():
                    features = eager(batch.images.contiguous(memory_format=torch.channels_last))
                yield features, batch.targets, batch.known

        train(head, batches())

    results: list[dict[str, float | str]] = []
    cache = FeatureCache(backbone, input_spec=spec, root=root / "cache")
    for pooling in ("none", "average"):
        cached = cache.fill(cache.plan(dataset, pooling=pooling))
        batches = FeatureLoader(cached, batch_size=BATCH_SIZE, shuffle=True)
        contestants = {
            "cached": lambda batches=batches: train(head, ((list(b.features), b.targets, b.known) for b in batches)),
            "backbone": through_backbone,
        }
        times = take_turns(contestants, rounds)
        what = f"epoch on cached features ({'pooled' if pooling == 'average' else '7 x 7 maps'}) / through the backbone"
        results.append({"what": what} | summary(times, fast="cached", slow="backbone", images=images))
    return results


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    backbone = Backbone("offline:efficientnet_lite0", frozen=True, stages=(-1,))
    with tempfile.TemporaryDirectory() as folder:
        results = [compare_engines(backbone, Path(folder), threads, arguments.rounds) for threads in (1, 2)]
        results += compare_epochs(backbone, Path(folder), arguments.images, min(3, arguments.rounds))
    print("| what | images a second | times faster (smallest to largest) |")
    print("|---|---|---|")
    for row in results:
        speeds = ", ".join(f"{name.removesuffix('_per_second')} {row[name]}" for name in row if name.endswith("second"))
        print(f"| {row['what']} | {speeds} | {row['times_faster']} ({row['smallest']} to {row['largest']}) |")
    write_text(RESULTS, json.dumps(results, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
