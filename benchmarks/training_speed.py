"""Training speed of the head alone, of the top of the backbone and the head, and of the whole network.

The first two read cached feature maps, as the recipes `probe` and `finetune` do, mirrored and cropped at random in
the second; the third reads images, whose decoding is not counted. A step is forward, backward and optimizer; random
numbers stand in for maps and images. The three are interleaved in one process, so the ratios also hold on a busy
machine; numbers are means, because crops differ in size.

    python benchmarks/training_speed.py --backbone offline:efficientnet_lite0 --train-from blocks.4 --image-size 256
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from manylabel import Backbone
from manylabel.heads import MLDecoder
from manylabel.losses import AsymmetricLoss
from manylabel.recipes.finetune import TopAndHead
from manylabel.training.fit import large_depthwise_in_float32

NUM_LABELS = 80


def stepper(parts: Sequence[nn.Module], inputs: Sequence[Tensor], *, bfloat16: bool) -> Callable[[], float]:
    """Return a function that runs one training step of modules in a row and returns its seconds."""
    weights = [weight for part in parts for weight in part.parameters() if weight.requires_grad]
    optimizer, loss = torch.optim.AdamW(weights, lr=1e-5), AsymmetricLoss()
    targets = (torch.rand(len(inputs[0]), NUM_LABELS) < 0.04).float()
    known = torch.ones_like(targets, dtype=torch.bool)

    def step() -> float:
        start = time.perf_counter()
        features: Sequence[Tensor] = inputs
        with ExitStack() as stack:
            if bfloat16:  # as `fit` does
                stack.enter_context(torch.autocast("cpu", torch.bfloat16))
                for part in parts:
                    stack.enter_context(large_depthwise_in_float32(part))
            for part in parts:
                features = part(features)
        optimizer.zero_grad(set_to_none=True)
        loss(features, targets, known).backward()
        optimizer.step()
        return time.perf_counter() - start

    return step


class Images(nn.Module):
    """A backbone that takes a list of one batch of images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps of the backbone."""
        maps: list[Tensor] = self.backbone(inputs[0])
        return maps


def main() -> None:
    """Print images per second of the three, and the ratios to the whole network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="offline:efficientnet_lite0", help="name of the backbone")
    parser.add_argument("--train-from", default="blocks.4", help="module or stage after which the backbone is cut")
    parser.add_argument("--image-size", type=int, default=256, help="height and width of the images")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="as in train")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    size, bfloat16 = (options.image_size, options.image_size), options.precision == "bfloat16"
    backbone = Backbone(options.backbone, stages=(-1,), image_size=options.image_size)
    backbone.keep_statistics()
    backbone.to(memory_format=torch.channels_last)  # as `finetune` does
    images = torch.rand(options.batch_size, 3, *size)
    whole = copy.deepcopy(backbone)
    bottom, top = backbone.split(options.train_from, size=size)
    with torch.no_grad():
        maps = [part.half().float() for part in bottom(images)]
        final = [part.half().float() for part in top(maps)]
    heads = [MLDecoder(backbone.channels[-1], NUM_LABELS, width=256, feedforward=512) for _ in range(3)]
    steppers = {
        "head": stepper([heads[0]], final, bfloat16=bfloat16),
        "top and head": stepper([TopAndHead(top, heads[1], mirror=True, crop=True)], maps, bfloat16=bfloat16),
        "whole network": stepper([Images(whole), heads[2]], [images], bfloat16=bfloat16),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steppers}
    for _ in range(options.rounds + 1):  # the first is a warm-up
        for name, step in steppers.items():
            seconds[name].append(step())
    means = {name: statistics.mean(values[1:]) for name, values in seconds.items()}
    for name, mean in means.items():
        ratio = means["whole network"] / mean
        print(f"{name:14s} {options.batch_size / mean:7.1f} images/s, {ratio:5.1f} times the whole network")


if __name__ == "__main__":
    main()
