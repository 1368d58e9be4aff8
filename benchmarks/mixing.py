"""Tokens of several images joined for training on cached features: python -m benchmarks.mixing --data SPEC.

The idea is that of SpliceMix (Wang et al., https://arxiv.org/abs/2311.15200), without pixels: heads that read tokens
get those of two images, or of four whose maps are averaged to a quarter of the positions, and labels are joined by OR.
A label is then unknown if it is unknown in an image and present in none. Variants:

    plain             the default, without mixing
    pairs, FRACTION   that fraction of the batches becomes pairs, each with twice the tokens
    half pairs        half of each batch becomes pairs
    extra pairs       half a batch of pairs in addition to each batch
    grids, FRACTION   that fraction of each batch becomes grids of 2 x 2 images
    extra grids       half a batch of grids in addition to each batch

Epochs, batches, schedule, weight decay, channel dropout and weight averaging are those of `manylabel train` with the
paper's ML-Decoder (add_csra=False), in bfloat16 from memory. Scores are saved in --out; gains are over "plain" with
as many epochs: 95 % intervals over seeds (Student's t), and bootstrap intervals over images, of each seed.
"""

import argparse
import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from benchmarks.few_images import interval
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, dropout2d

from manylabel.evaluation import compare_map
from manylabel.features import CachedFeatures
from manylabel.heads import MLDecoder
from manylabel.losses import AsymmetricLoss
from manylabel.metrics import mean_average_precision
from manylabel.recipes import Probe, open_sets, probe
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.reporter import Reporter

Part = tuple[Tensor, Tensor, Tensor]
"""Maps ``[B, C, H, W]``, targets and known labels ``[B, L]``."""

Mix = Callable[[Part, np.random.Generator], list[Part]]


def unite(part: Part, others: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return targets and known labels of images joined with other images of the batch."""
    _, values, known = part
    joined = torch.stack([values, *(values[each] for each in others)]).amax(0)
    return joined, torch.stack([known, *(known[each] for each in others)]).all(0) | (joined > 0)


def pairs(part: Part, rng: np.random.Generator) -> Part:
    """Return every image next to a random other one."""
    maps = part[0]
    other = torch.from_numpy(rng.permutation(len(maps)))
    return torch.cat([maps, maps[other]], 3), *unite(part, [other])


def grids(part: Part, rng: np.random.Generator) -> Part:
    """Return every image in a grid with three random ones, as many positions as in one map."""
    maps = part[0]
    height, width = maps.shape[2:]
    top, left = -(-height // 2), -(-width // 2)
    others = [torch.from_numpy(rng.permutation(len(maps))) for _ in range(3)]
    sizes = [(top, left), (top, width - left), (height - top, left), (height - top, width - left)]
    small = [
        adaptive_avg_pool2d(each, size) for each, size in zip([maps, *(maps[i] for i in others)], sizes, strict=True)
    ]
    return torch.cat([torch.cat(small[:2], 3), torch.cat(small[2:], 3)], 2), *unite(part, others)


def cut(part: Part, places: slice) -> Part:
    """Return some images of a batch."""
    maps, values, known = part
    return maps[places], values[places], known[places]


def some_grids(fraction: float) -> Mix:
    """Turn a fraction of each batch into grids."""

    def mix(part: Part, rng: np.random.Generator) -> list[Part]:
        mixed, number = grids(part, rng), round(fraction * len(part[0]))
        return [joined(cut(mixed, slice(number)), cut(part, slice(number, None)))]

    return mix


def joined(first: Part, second: Part) -> Part:
    """Return both as one batch."""
    maps, values, known = (torch.cat(each) for each in zip(first, second, strict=True))
    return maps, values, known


def halves(part: Part) -> tuple[slice, slice]:
    """Return the first and the second half of a batch."""
    half = len(part[0]) // 2
    return slice(half), slice(half, None)


VARIANTS: dict[str, Mix] = {
    "plain": lambda part, _: [part],
    "pairs, 0.5": lambda part, rng: [pairs(part, rng)] if rng.random() < 0.5 else [part],
    "pairs, 1": lambda part, rng: [pairs(part, rng)],
    "half pairs": lambda part, rng: [cut(part, halves(part)[1]), cut(pairs(part, rng), halves(part)[0])],
    "extra pairs": lambda part, rng: [part, cut(pairs(part, rng), halves(part)[0])],
    "grids, 0.25": some_grids(0.25),
    "grids, 0.5": some_grids(0.5),
    "extra grids": lambda part, rng: [joined(part, cut(grids(part, rng), halves(part)[0]))],
}


def in_memory(cached: CachedFeatures, view: int) -> Tensor:
    """Return all maps of a view in float16."""
    blocks = np.array_split(np.arange(len(cached)), len(cached) // 500 + 1)
    return torch.cat([cached.read(block, view=view)[-1].half() for block in blocks])


def train(
    head: nn.Module, views: list[Tensor], values: Tensor, known: Tensor, mix: Mix, settings: Probe, *, epochs: int
) -> nn.Module:
    """Train a head on mixed batches, and return the average of its weights."""
    average, loss, size = copy.deepcopy(head), AsymmetricLoss(), settings.batch_size
    trained = [weight for weight in head.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in trained if weight.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in trained if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.peak_learning_rate)
    rng, per_epoch, step = np.random.default_rng(settings.seed), -(-len(values) // size), 0
    for _ in range(epochs):
        order = rng.permutation(len(values))
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            drawn = rng.integers(0, len(views), len(chosen))
            maps = torch.stack([views[view][image] for view, image in zip(drawn, chosen, strict=True)]).float()
            for group in optimizer.param_groups:
                group["lr"] = settings.peak_learning_rate * one_cycle(step / (epochs * per_epoch))
            optimizer.zero_grad()
            total, count = torch.zeros(()), 0
            for mixed, targets, is_known in mix((maps, values[chosen], known[chosen]), rng):
                with torch.autocast("cpu", torch.bfloat16):
                    logits = head([dropout2d(mixed, settings.feature_dropout)])
                total, count = total + len(mixed) * loss(logits.float(), targets, is_known), count + len(mixed)
            (total / count).backward()
            optimizer.step()
            step += 1
            weight = 1 - min(settings.ema_decay, (1 + step) / (10 + step))
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(head.parameters()), weight)
    return average.eval()


def one_cycle(done: float) -> float:
    """Return the learning rate relative to its peak."""
    if done < 0.2:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * done / 0.2))
    return 0.5 * (1 + math.cos(math.pi * (done - 0.2) / 0.8))


def main() -> None:
    """Train what is missing, and print every mAP and gain."""
    options = parse()
    settings = Probe(data=options.data, val=options.val, backbone=options.backbone, limit=options.limit)
    setup = probe.setup(settings, sets=open_sets(settings))
    cached = cache_sets(setup, Reporter())
    views, val = [in_memory(cached.train, view) for view in range(cached.train.num_views)], in_memory(cached.val, 0)
    values, known = map(torch.from_numpy, cached.train.dataset.targets.dense())
    truth, is_known = map(torch.from_numpy, cached.val.dataset.targets.dense())
    size = setup.settings.num_epochs(-(-len(values) // settings.batch_size), num_labels=values.shape[1])
    arguments = {**setup.settings.head_settings, "add_csra": False}
    options.out.mkdir(parents=True, exist_ok=True)
    for times in options.times:
        reached: dict[str, list[Tensor]] = {}
        for variant in ("plain", *options.variants):
            reached[variant] = []
            for seed in options.seeds:
                file = options.out / f"{variant.replace(', ', '_').replace(' ', '_')}_{times}_{seed}.pt"
                if not file.exists():
                    torch.manual_seed(seed)
                    head = MLDecoder(val.shape[1], values.shape[1], **arguments)
                    own = replace(setup.settings, seed=seed)
                    head = train(head, views, values, known, VARIANTS[variant], own, epochs=times * size)
                    with torch.inference_mode():
                        torch.save(torch.cat([head([maps.float()]) for maps in val.split(200)]), file)
                reached[variant].append(torch.load(file))
            maps = [100 * float(mean_average_precision(each, truth, is_known)) for each in reached[variant]]
            base = [100 * float(mean_average_precision(each, truth, is_known)) for each in reached["plain"]]
            images = [
                compare_map(*pair, truth, is_known) for pair in zip(reached["plain"], reached[variant], strict=True)
            ]
            print(f"{times}x {variant}: {np.mean(maps):.2f}, gain {interval(np.subtract(maps, base))}", end="")
            print("; over images:", *([round(100 * (value or 0), 2) for value in each] for each in images), flush=True)


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec of images with labels")
    parser.add_argument("--val", help="data spec of the validation images (default: held-out images)")
    parser.add_argument("--backbone", default="offline:efficientnet_lite0")
    parser.add_argument("--limit", type=int, help="most images of each part")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS)[1:])
    parser.add_argument("--times", type=int, nargs="+", default=[1], help="epochs, relative to the default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/mixing"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
