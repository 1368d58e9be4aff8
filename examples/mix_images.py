"""Train a head on cached features, plainly and with half of each batch mixed in pairs, and compare their mAP.

    python examples/mix_images.py

Load your own images instead of the generated scenes to see whether mixing helps there.
"""

import torch
from torch import Tensor

from manylabel import Backbone, data
from manylabel.features import CachedFeatures, FeatureCache, FeatureLoader
from manylabel.heads import MLDecoder
from manylabel.losses import AsymmetricLoss
from manylabel.metrics import mean_average_precision

EPOCHS = 15


def plain(maps: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return a batch as it is."""
    return [(maps, targets)]


def half_pairs(maps: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return half of a batch as pairs: each image next to a random other one, with the labels of both."""
    half, other = len(maps) // 2, torch.randperm(len(maps))
    joined, united = torch.cat([maps, maps[other]], dim=3), torch.maximum(targets, targets[other])
    return [(joined[:half], united[:half]), (maps[half:], targets[half:])]


def main() -> None:
    """Train both heads, and print their mAP on other images."""
    cache = FeatureCache(Backbone("offline:everyday", frozen=True))
    train, val = (cache.fill(cache.plan(data.scenes(200, split=split))) for split in ("train", "val"))
    for mix in (plain, half_pairs):
        torch.manual_seed(0)
        head = MLDecoder(train.channels[-1], len(train.dataset.labels), width=256, feedforward=512)
        loss, optimizer = AsymmetricLoss(), torch.optim.AdamW(head.parameters(), lr=1e-3)
        loader = FeatureLoader(train, batch_size=32, shuffle=True)
        for batch in (batch for _ in range(EPOCHS) for batch in loader):  # each pass is in another order
            optimizer.zero_grad()
            sum(loss(head([maps]), targets) for maps, targets in mix(batch.features[-1], batch.targets)).backward()
            optimizer.step()
        print(f"{mix.__name__}: mAP {evaluate(head, val):.3f}")


@torch.inference_mode()
def evaluate(head: MLDecoder, cached: CachedFeatures) -> float:
    """Return the mAP of a head."""
    values, known = map(torch.from_numpy, cached.dataset.targets.dense())
    scores = head.eval()(cached.read(range(len(cached)))).sigmoid()
    return float(mean_average_precision(scores, values, known))


if __name__ == "__main__":
    main()
