"""Time of a training step of five ML-Decoder teachers: OMP_NUM_THREADS=1 python benchmarks/batched_teachers.py.

One after the other, as the recipe trains them; as one model of five heads that share a batch; and batched with
`torch.func.vmap`. Prints CPU milliseconds of forward, backward and optimizer, for a batch of 64 maps.
"""

import copy
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import AdamW

from manylabel.heads import MLDecoder
from manylabel.losses import AsymmetricLoss

TEACHERS, LABELS, ROUNDS = 5, 4, 8


def milliseconds(step: Callable[[], None]) -> float:
    """Return the lower third of the CPU times of a step: other processes only slow it down."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        step()
        times.append(1000 * (time.process_time() - start))
    return sorted(times)[ROUNDS // 3]


def main() -> None:
    """Time the three ways in both precisions."""
    features, loss = [torch.rand(64, 1280, 7, 7)], AsymmetricLoss()
    targets = (torch.rand(64, TEACHERS * LABELS) < 0.1).float()

    def heads() -> nn.ModuleList:
        return nn.ModuleList(MLDecoder(1280, LABELS, width=128, feedforward=256) for _ in range(TEACHERS))

    alone, shared, stacked = heads(), heads(), heads()
    optimizers = [AdamW(head.parameters()) for head in alone]
    of_shared = AdamW(shared.parameters())
    weights, buffers = stack_module_state(list(stacked))
    weights = {name: values.detach().requires_grad_() for name, values in weights.items()}
    of_stacked, skeleton = AdamW(weights.values()), copy.deepcopy(stacked[0]).to("meta")

    def update(optimizer: AdamW, logits: torch.Tensor, wanted: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss(logits.float(), wanted).backward()
        optimizer.step()

    def in_turn() -> None:
        for head, optimizer, wanted in zip(alone, optimizers, targets.split(LABELS, dim=1), strict=True):
            update(optimizer, head(features), wanted)

    def as_one_model() -> None:
        update(of_shared, torch.cat([head(features) for head in shared], dim=1), targets)

    def batched() -> None:
        def run(own: dict[str, torch.Tensor], fixed: dict[str, torch.Tensor]) -> torch.Tensor:
            return functional_call(skeleton, (own, fixed), (features,))

        logits = vmap(run, randomness="different")(weights, buffers)  # [teachers, 64, labels]
        update(of_stacked, logits.movedim(0, 1).flatten(1), targets)

    for precision in ("float32", "bfloat16"):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            times = {way.__name__: round(milliseconds(way)) for way in (in_turn, as_one_model, batched)}
        print(precision, times, flush=True)


if __name__ == "__main__":
    main()
