"""Losses for incomplete tags and for rare labels, on frozen features: python benchmarks/incomplete_labels.py --help.

    python benchmarks/incomplete_labels.py incomplete VOC --data voc:VOCdevkit/VOC2012,split=train
    python benchmarks/incomplete_labels.py incomplete VOC --data voc:VOCdevkit/VOC2012,split=train --head ml_decoder
    python benchmarks/incomplete_labels.py rare COCO --data coco:coco/annotations/instances_train2014.json --first 13333

Every method trains the same head on the same features of one view with the optimizer, schedule, channel dropout and
weight averaging of `manylabel train`: a linear head on averaged features in float32, others on whole maps in bfloat16.
Tags are removed from the training images only: one is kept per image, or each with a probability. Validation labels are
complete. Intervals are 95 % bootstrap intervals over validation images, of the mean mAP over seeds; the gain is that
over asymmetric loss with missing tags as absent.

The long-tailed subset has the form of COCO-MLT: images are added label by label, from the rarest to the most frequent,
until the label of rank r has 1,200 / r^1.1 images. Head labels end with more than 100 images, tail labels with fewer
than 20. Finished cells are reused.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import dropout2d

from manylabel import losses
from manylabel.backbone import Backbone
from manylabel.data import class_aware_sampler, hold_out, load
from manylabel.data.sampling import every_image
from manylabel.evaluation import bootstrap_weights
from manylabel.evaluation.bootstrap import estimate
from manylabel.features import FeatureCache
from manylabel.heads import HEADS, LinearClassifier
from manylabel.heads.head import probe_defaults
from manylabel.losses import MultiLabelLoss
from manylabel.metrics import mean_average_precision
from manylabel.settings import Probe
from manylabel.storage import write_text
from manylabel.targets import Targets
from manylabel.training.callbacks import average
from manylabel.training.optimizers import make_optimizer, make_schedule

RESULTS = Path(__file__).parent / "results"
BACKBONE = "offline:efficientnet_lite0"
DRAWS = 100
HEAD, TAIL = 100, 20  # images of a label
BASELINE = "asymmetric, negative"

INCOMPLETE: dict[str, Callable[[], MultiLabelLoss]] = {
    "binary cross-entropy, negative": lambda: losses.BinaryCrossEntropy(unknown="negative"),
    "binary cross-entropy, ignore": losses.BinaryCrossEntropy,
    BASELINE: lambda: losses.AsymmetricLoss(unknown="negative"),
    "hill": losses.Hill,
    "splc": losses.SelfPacedCorrection,
    "large_loss, reject (LL-R)": losses.LargeLoss,
    "large_loss, correct (LL-Ct)": lambda: losses.LargeLoss("correct"),
    "large_loss, relabel (LL-Cp)": lambda: losses.LargeLoss("relabel"),
    "entropy_maximization, EM alone": lambda: losses.EntropyMaximization(negatives=0),
    "entropy_maximization (EM + APL)": losses.EntropyMaximization,
    "two_way": lambda: losses.TwoWayLoss(unknown="negative"),
    "selective (CSL)": losses.ClassAwareSelective,
    "distribution_balanced": lambda: losses.DistributionBalancedLoss(unknown="negative"),
}
RARE: dict[str, tuple[Callable[[], MultiLabelLoss], str]] = {
    "asymmetric": (losses.AsymmetricLoss, ""),
    "asymmetric, class-aware sampler": (losses.AsymmetricLoss, "sampler"),
    "asymmetric, positive weights": (losses.AsymmetricLoss, "weights"),
    "binary cross-entropy": (losses.BinaryCrossEntropy, ""),
    "binary cross-entropy, class-aware sampler": (losses.BinaryCrossEntropy, "sampler"),
    "binary cross-entropy, positive weights": (losses.BinaryCrossEntropy, "weights"),
    "focal": (losses.FocalLoss, ""),
    "two_way": (losses.TwoWayLoss, ""),
    "distribution_balanced": (losses.DistributionBalancedLoss, ""),
    "distribution_balanced, class-aware sampler": (losses.DistributionBalancedLoss, "sampler"),
}


def read_features(spec: str, first: int | None, *, whole: bool) -> tuple[Tensor, Targets, Tensor, Tensor, Tensor]:
    """Return features and targets for training; features, targets and known labels for validation."""
    data = load(spec)
    data = hold_out(data if first is None else data.subset(range(first)), val_fraction=0.2 if first is None else 0.25)
    backbone = Backbone(BACKBONE, frozen=True, stages=(-1,))
    cache = FeatureCache(backbone, input_spec=backbone.input_spec)
    parts = []
    for part in (data.split("train"), data.split("val")):
        if whole:
            cached = cache.fill(cache.plan(part))
            blocks = np.array_split(np.arange(len(cached)), len(cached) // 256 + 1)
            parts.append((torch.cat([cached.read(block)[-1].half() for block in blocks]), cached.dataset.targets))
        else:
            cached, averages = cache.averages(part)
            parts.append((averages[:, :, None, None], cached.dataset.targets))
    (train, targets), (val, val_targets) = parts
    truth, known = map(torch.from_numpy, val_targets.dense())
    return train, targets, val, truth.bool(), known


def keep(targets: Targets, kept: str, seed: int) -> Targets:
    """Return targets with some of the positives, and everything else unknown."""
    values, _ = targets.dense()
    drawn = np.random.default_rng(seed).random(values.shape)
    if kept == "one":
        drawn = np.where(values > 0, drawn, -1)
        values = values * (drawn == drawn.max(axis=1, keepdims=True))
    else:
        values = values * (drawn < float(kept))
    return Targets.from_dense(values).forget_absent()


def train_head(
    kind: type[nn.Module],
    features: Tensor,
    targets: Targets,
    loss: MultiLabelLoss,
    *,
    seed: int,
    extra: str = "",
    fit: bool = True,
) -> nn.Module:
    """Train a head; return its moving average."""
    defaults = probe_defaults(kind)
    settings = Probe(data="", learning_rate=defaults.learning_rate, seed=seed)
    torch.manual_seed(seed)
    head, mean = (kind(features.shape[1], targets.shape[1], **defaults.settings) for _ in range(2))
    mean.load_state_dict(head.state_dict())
    values, known = map(torch.from_numpy, targets.dense())
    if fit:
        loss.fit(targets)
    if extra == "weights":
        loss.positive_weights = losses.positive_weights(targets)
    sampler = class_aware_sampler(targets, seed=seed) if extra == "sampler" else every_image(len(features), seed=seed)
    steps = -(-len(features) // settings.batch_size)
    epochs = settings.num_epochs(steps, num_labels=targets.shape[1])
    optimizer = make_optimizer(head, settings)
    schedule = make_schedule(optimizer, schedule=settings.schedule, warmup=settings.warmup, total_steps=steps * epochs)
    done = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loss.start_epoch(epoch, epochs)
        for images in torch.tensor(list(sampler)).split(settings.batch_size):
            dropped = dropout2d(features[images].float(), settings.feature_dropout)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=kind is not LinearClassifier):
                logits = head([dropped])
            parts = logits.float().split(len(images))  # a head that averages others has a loss for each
            torch.stack([loss(part, values[images], known[images], images) for part in parts]).mean().backward()
            optimizer.step()
            schedule.step()
            for averaged, current in zip(mean.parameters(), head.parameters(), strict=True):
                part = min(settings.ema_decay, (1 + done) / (10 + done))
                averaged.data = average(averaged.data, current.data, keep=part)
            done += 1
    return mean.eval()


def draws_of(scores: Tensor, truth: Tensor, known: Tensor) -> NDArray[np.float64]:
    """Return mAP in per cent, then that of each bootstrap draw."""
    weights = bootstrap_weights(len(scores), draws=DRAWS)
    return 100 * mean_average_precision(scores, truth, known, weights=weights).double().numpy()


def with_interval(draws: NDArray[np.float64]) -> list[float]:
    """Return a value and its interval."""
    found = estimate(draws, bounds=(-100, 100))
    return [round(float(one), 2) for one in (found.value, found.low, found.high)]


def long_tailed(targets: Targets) -> NDArray[np.int64]:
    """Return the images of a long-tailed subset."""
    values, _ = targets.dense()
    order = np.argsort(-values.sum(axis=0), kind="stable")
    chosen = np.zeros(len(values), dtype=bool)
    shuffled = np.random.default_rng(0).permutation(len(values))
    for rank in range(len(order), 0, -1):
        label, wanted = order[rank - 1], max(int(1200 / rank**1.1), 3)
        more = [image for image in shuffled if values[image, label] and not chosen[image]]
        chosen[more[: max(wanted - int(values[chosen, label].sum()), 0)]] = True
    return np.flatnonzero(chosen)


def measure(
    rows: list[dict[str, object]],
    cell: dict[str, object],
    draws: Callable[[], dict[str, NDArray[np.float64]]],
    file: Path,
) -> None:
    """Add the row of a cell unless it is there, and save all rows."""
    if any(all(row[key] == value for key, value in cell.items()) for row in rows):
        return
    found = {name: [round(float(one), 3) for one in values] for name, values in draws().items()}
    rows.append({**cell, **found})
    write_text(file, json.dumps(rows) + "\n", overwrite=True)
    print(cell, {name: values[0] for name, values in found.items()}, flush=True)


def mean_draws(scores: Sequence[Tensor], truth: Tensor, known: Tensor) -> NDArray[np.float64]:
    """Return the mean over seeds of mAP and of its draws."""
    return np.mean([draws_of(one, truth, known) for one in scores], axis=0)


def main() -> None:
    """Measure what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("incomplete", "rare"))
    parser.add_argument("name", help="Name of the dataset.")
    parser.add_argument("--data", required=True)
    parser.add_argument("--first", type=int, help="Use only the first images, a quarter of them for validation.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/incomplete_labels"))
    parser.add_argument("--head", default="linear", choices=sorted(HEADS))
    parser.add_argument("--methods", nargs="+", choices=list(INCOMPLETE), default=list(INCOMPLETE))
    arguments = parser.parse_args()
    kind = HEADS[arguments.head]
    whole = kind is not LinearClassifier
    features, targets, val, truth, known = read_features(arguments.data, arguments.first, whole=whole)
    print(f"{len(features):,} training images, {len(val):,} validation images", flush=True)
    name = f"{arguments.name}_{arguments.head}" if whole else arguments.name
    file = arguments.runs / f"{arguments.what}_{name}.json"
    rows: list[dict[str, object]] = json.loads(file.read_text()) if file.is_file() else []

    def scores_of(loss: MultiLabelLoss, train: Tensor, labels: Targets, seed: int, **options: object) -> Tensor:
        head = train_head(kind, train, labels, loss, seed=seed, **options)
        with torch.inference_mode():
            return torch.cat([head([block.float()]) for block in val.split(256)])

    if arguments.what == "incomplete":
        for kept in ("one", "0.1", "0.5", "1"):
            for method in arguments.methods:
                make = INCOMPLETE[method]

                def draws(kept: str = kept, method: str = method, make: Callable[[], MultiLabelLoss] = make) -> dict:
                    fit = "ignore" not in method
                    parts = [keep(targets, kept, seed) for seed in arguments.seeds]
                    scores = [
                        scores_of(make(), features, part, seed, fit=fit)
                        for part, seed in zip(parts, arguments.seeds, strict=True)
                    ]
                    return {"mAP": mean_draws(scores, truth, known)}

                measure(rows, {"kept": kept, "method": method}, draws, file)
        reference = {row["kept"]: np.array(row["mAP"]) for row in rows if row["method"] == BASELINE}
    else:
        images = long_tailed(targets)
        part, counts = targets[images], targets[images].positives
        groups = {"all": counts > 0, "head": counts > HEAD, "medium": (counts >= TAIL) & (counts <= HEAD)}
        groups["tail"] = (counts > 0) & (counts < TAIL)
        print(len(images), "images;", {name: int(group.sum()) for name, group in groups.items()}, flush=True)
        for method, (make, extra) in RARE.items():

            def draws(make: Callable[[], MultiLabelLoss] = make, extra: str = extra) -> dict:
                scores = [scores_of(make(), features[images], part, seed, extra=extra) for seed in arguments.seeds]
                columns = {name: torch.from_numpy(group) for name, group in groups.items()}
                return {
                    name: mean_draws([one[:, group] for one in scores], truth[:, group], known[:, group])
                    for name, group in columns.items()
                }

            measure(rows, {"kept": "1", "method": method}, draws, file)
        reference = {"1": np.array(next(row["all"] for row in rows if row["method"] == "asymmetric"))}
    table = []
    for row in rows:
        values = {name: np.array(draws) for name, draws in row.items() if isinstance(draws, list)}
        first = next(iter(values.values()))
        gain = with_interval(first - reference[row["kept"]])
        shown = {name: with_interval(draws) for name, draws in values.items()}
        table.append({"kept": row["kept"], "method": row["method"], **shown, "gain": gain})
    text = "[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]\n"
    write_text(RESULTS / f"{arguments.what}_labels_{name}.json", text, overwrite=True)
    for row in table:
        print(row)


if __name__ == "__main__":
    main()
