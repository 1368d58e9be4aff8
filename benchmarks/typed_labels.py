"""Typed labels: mAP and calibration on labels that the model was never trained on.

    python benchmarks/typed_labels.py coco:DIR,split=choose --fit coco:DIR,split=fit --images 1000
    python benchmarks/typed_labels.py voc:VOCdevkit/VOC2012,split=train,val_fraction=0.2,part=val --images 1143
    python benchmarks/typed_labels.py coco:DIR,split=choose --known voc:VOCdevkit/VOC2012,split=train --images 500
    python benchmarks/typed_labels.py voc:VOCdevkit/VOC2012,split=train --images 64 --cost 1000

Labels of the dataset that the model was trained on are left out in turn: a label is typed, and its own trained output
is not used. `as typed` is what a user gets: trained outputs where there are any. With `--fit`, scale and bias of the
scores are fitted on other images with nine tenths of the labels, and tested on the last tenth. `--known` measures which
labels have informative scores (AUROC of 0.75 or more), for labels as they are and with all names left out that are more
similar than 0.8, 0.75 and so on down to 0.4: limits are chosen such that 90 % of the labels reported as known are
informative, and tested on labels left out. `--cost` measures time and memory of so many labels instead.
"""

import argparse
import itertools
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from manylabel import Classifier, data
from manylabel.backbone import load_classes
from manylabel.classifier.class_match import _name_vectors, _vectors, find_synonyms, match_classes
from manylabel.data import eval_transform
from manylabel.heads.typed_labels import BIAS, PARTS, SCALE, SMALLEST, TRAINED_WEIGHT
from manylabel.images import decode
from manylabel.metrics import average_precision, calibration_error
from manylabel.recipes.unseen import NAMED_SPLITS
from manylabel.text import open_encoder
from manylabel.types import LabelSpace

GROUPS = {
    "vehicle": "bicycle|car|motorcycle|airplane|bus|train|truck|boat",
    "animal": "bird|cat|dog|horse|sheep|cow|elephant|bear|zebra|giraffe",
    "furniture": "chair|couch|potted plant|bed|dining table|toilet",
    "food": "banana|apple|sandwich|orange|broccoli|carrot|hot dog|pizza|donut|cake",
    "appliance": "microwave|oven|toaster|sink|refrigerator",
    "electronic": "tv|laptop|mouse|remote|keyboard|cell phone",
    "accessory": "backpack|umbrella|handbag|tie|suitcase",
    "kitchenware": "bottle|wine glass|cup|fork|knife|spoon|bowl",
}
"""COCO's supercategories, typed as labels: present where one of their labels is."""
CAPS = (0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4)
PREDICTORS = ("similarity", "similarity - mean", "margin", "largest weight", "spread, negative")
PRECISION = 0.9  # of the labels that are reported as known
VARIANTS = ("text only, pooled", "text only", "with WordNet groups", "with trained labels, own left out")


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--fit", help="dataset to fit the calibration on")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument(
        "--skip", type=int, default=0, help="images to leave out first, such as those settings were chosen on"
    )
    parser.add_argument("--model", default="builtin:everyday")
    parser.add_argument(
        "--known", metavar="DATA", help="also with this dataset: the limit of similarity, and nothing else"
    )
    parser.add_argument("--cost", type=int, help="measure the cost of so many typed labels, and nothing else")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = Classifier.from_pretrained(arguments.model)
    if arguments.cost:
        images = data.load(arguments.data).images
        _cost(model, [images[row] for row in range(arguments.images)], arguments.cost)
        return
    if arguments.known:
        _known(
            model, [_look(model, spec, arguments.images, arguments.skip) for spec in (arguments.data, arguments.known)]
        )
        return
    test = _look(model, arguments.data, arguments.images, arguments.skip)
    labels, targets, logs = test.labels, test.targets, _measure(model, test)
    print(f"| {len(targets):,} images | 15 unseen | all labels | groups |\n|---|---|---|---|")
    unseen = [labels.index(name) for name in NAMED_SPLITS["coco_65_15"] if name in labels]
    count = len([name for name in labels if name not in GROUPS])
    for variant, scores in [*zip(VARIANTS, logs, strict=True), ("as typed", test.typed)]:
        values = 100 * average_precision(scores, targets, test.known).numpy()
        cells = [values[rows] for rows in (unseen, range(count), range(count, len(labels)))]
        print(f"| {variant} |" + "".join(f" {np.nanmean(cell):.1f} |" if len(cell) else " |" for cell in cells))
    if arguments.fit:
        fit = _look(model, arguments.fit, arguments.images, arguments.skip)
        _calibrate((targets, logs[-1]), (fit.targets, _measure(model, fit)[-1]), _facts(model, labels[:count]))


def _cost(model: Classifier, images: Sequence, count: int) -> None:
    """Print what typed labels cost: CPU time and memory once, and CPU time for each image."""
    model.with_labels(["xylophone"])  # opens the encoder and the classes
    start, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    typed = model.with_labels([f"tag {number}" for number in range(count)])
    took, more = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    print(f"encoding and matching {count:,} labels: {took:.1f} s of CPU time, {more / 1e6:.2f} GB")
    times: dict[str, list[float]] = {"plain": [], "typed": []}
    for _ in range(6):  # in turns: the first is a warm-up
        for name, each in (("plain", model), ("typed", typed)):
            start = time.process_time()
            each.predict(list(images), batch_size=8)
            times[name].append((time.process_time() - start) / len(images))
    plain, ours = (float(np.median(each[1:])) for each in times.values())
    print(f"CPU time per image: {1000 * plain:.1f} ms, with typed labels {1000 * ours:.1f} ms ({ours / plain:.3f} x)")


@dataclass
class _Looked:
    """What the model finds in N images: probabilities of K classes, scores of T trained labels, logits as typed."""

    labels: list[str]
    targets: Tensor  # [N, L]
    known: Tensor  # [N, L]
    pooled: Tensor  # [N, K]
    parts: Tensor  # [N, 9, K]
    trained: Tensor  # [N, T]
    typed: Tensor  # [N, L]

    def log_probabilities(self, weights: Tensor, *, parts: bool = True) -> Tensor:
        """Return the logs of labels given as mixtures ``[L, K + T]`` or ``[L, K]``, before calibration."""
        of_classes, of_trained = weights[:, : self.pooled.shape[1]], weights[:, self.pooled.shape[1] :]
        evidence = TRAINED_WEIGHT * self.trained @ of_trained.t() if of_trained.shape[1] else 0
        found = [self.pooled @ of_classes.t()]
        if parts:
            found.append(torch.stack([(self.parts @ row).amax(1) for row in of_classes], 1))
        return (torch.stack(found) + evidence).clamp(min=SMALLEST).log().mean(0)


def _look(model: Classifier, spec: str, count: int, skip: int) -> _Looked:
    """Run the model on random images of a dataset."""
    dataset = data.load(spec)
    dataset = dataset.subset(np.random.default_rng(0).permutation(len(dataset))[skip : skip + count])
    values, known = map(torch.as_tensor, dataset.targets.dense())
    targets = values > 0.5
    labels = list(dataset.labels)
    if set(labels) >= {name for names in GROUPS.values() for name in names.split("|")}:
        rows = [[labels.index(name) for name in names.split("|")] for names in GROUPS.values()]
        targets = torch.cat([targets, torch.stack([targets[:, row].any(1) for row in rows], 1)], 1)
        known = torch.cat([known, torch.stack([known[:, row].all(1) for row in rows], 1)], 1)
        labels += list(GROUPS)
    # a label that no model knows: the head then holds the pretrained classes in any case
    asked = model.with_labels([*labels, "xylophone"]).eval()
    classes, transform, found, start = (
        load_classes(model.backbone.name),
        eval_transform(model.input_spec),
        [],
        time.time(),
    )
    with torch.inference_mode():
        for first in range(0, len(dataset), 32):
            names = range(first, min(first + 32, len(dataset)))
            images = torch.stack([transform(decode(dataset.images[row])) for row in names])
            features = asked.backbone(images)
            pooled, local = asked.head._classify(features, classes, parts=PARTS)
            trained = model.scores(asked.head._trained(features))
            found.append([pooled, local.flatten(2).transpose(1, 2), trained, asked.classify(features)[:, :-1]])
            if first % 320 == 0:
                print(f"{first:,} of {len(dataset):,} images, {time.time() - start:.0f} s", flush=True)
    return _Looked(labels, targets, known, *(torch.cat(each) for each in zip(*found, strict=True)))


def _measure(model: Classifier, looked: _Looked) -> list[Tensor]:
    """Return the log probabilities of each variant ``[N, L]``."""
    classes, encoder, wanted = load_classes(model.backbone.name), open_encoder(), LabelSpace(looked.labels)
    plain = match_classes(encoder, wanted, classes.names).weights
    grouped = match_classes(encoder, wanted, classes.names, classes.synsets).weights
    variants = [looked.log_probabilities(plain, parts=False)]
    return [*variants, *map(looked.log_probabilities, (plain, grouped, _own_left_out(model, looked.labels)))]


def _own_left_out(model: Classifier, labels: list[str]) -> Tensor:
    """Return labels as mixtures of classes and of trained labels other than themselves, ``[L, K + T]``."""
    classes, encoder = load_classes(model.backbone.name), open_encoder()
    names = [*classes.names, *model.labels]
    mixed = match_classes(encoder, LabelSpace(labels), names, classes.synsets).weights
    for name, trained in find_synonyms(encoder, labels, list(model.labels)).items():
        row, column = mixed[labels.index(name)], len(classes.names) + model.labels.index(trained)
        row *= row.sum() / (row.sum() - row[column])
        row[column] = 0
    return mixed


def _known(model: Classifier, looked: Sequence[_Looked]) -> None:
    """Print how well similarity to the nearest name and other measures predict which typed scores are informative."""
    points = [point for each in looked for point in _leave_more_out(model, each)]
    values = np.array([[point[name] for name in PREDICTORS] for point in points])
    scores, labels = np.array([point["auroc"] for point in points]), [point["label"] for point in points]
    informative, folds = scores >= 0.75, np.array([sorted(set(labels)).index(label) % 10 for label in labels])
    print(f"{len(points)} labels and versions of labels with less known, {informative.sum()} informative")
    print("| similarity | labels | informative | mean AUROC | median AP / chance |\n|---|---|---|---|---|")
    edges, times = [-1, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1.01], np.array([point["times"] for point in points])
    for low, high in itertools.pairwise(edges):
        rows = (values[:, 0] >= low) & (values[:, 0] < high)
        if rows.any():
            print(
                f"| {low:.2f} to {high:.2f} | {rows.sum()} | {100 * informative[rows].mean():.0f} % | "
                f"{scores[rows].mean():.3f} | {np.median(times[rows]):.1f} |"
            )
    print("| predictor | limit | AUROC | of left-out labels: informative, but unknown | known, but not informative |")
    print("|---|---|---|---|---|")
    for column, name in enumerate(PREDICTORS):
        chosen = np.zeros(len(points), dtype=bool)
        for fold in range(10):
            limit = _lowest_limit(values[folds != fold, column], informative[folds != fold])
            chosen[folds == fold] = values[folds == fold, column] >= limit
        missed, wrong = (informative & ~chosen).sum(), (~informative & chosen).sum()
        limit, area = _lowest_limit(values[:, column], informative), _auroc(values[:, column], informative)
        cells = f"{missed} of {informative.sum()} | {wrong} of {(~informative).sum()}"
        print(f"| {name} | {limit:.3f} | {area:.3f} | {cells} |")


def _leave_more_out(model: Classifier, looked: _Looked) -> Iterator[dict[str, Any]]:
    """Yield each label as it is, and as if the model knew nothing more similar than each of `CAPS`."""
    classes, encoder = load_classes(model.backbone.name), open_encoder()
    names, wanted = [*classes.names, *model.labels], LabelSpace(looked.labels)
    owners, synonyms = zip(*((row, name) for row, given in enumerate(names) for name in given.split(", ")), strict=True)
    vectors, of_names = _vectors(encoder, wanted), _name_vectors(encoder, list(synonyms))
    similar = torch.full((len(wanted), len(names)), -1.0)
    similar.scatter_reduce_(1, torch.tensor(owners).expand(len(wanted), -1), vectors @ of_names.t(), "amax")
    by_text = match_classes(encoder, wanted, names).weights
    own, shipped = find_synonyms(encoder, looked.labels, list(model.labels)), _own_left_out(model, looked.labels)
    groups = match_classes(encoder, wanted, names, classes.synsets).similarity == 1
    for row, label in enumerate(looked.labels):
        present = looked.targets[:, row].numpy()
        if present.sum() < 10:
            continue
        if label in own:
            similar[row, len(classes.names) + list(model.labels).index(own[label])] = torch.inf
        before = None
        for cap in (None, *CAPS):
            left = similar[row] <= (cap or 1.1)
            weights = shipped[row] if cap is None else by_text[row] * left / (by_text[row] * left).sum()
            nearest = similar[row][left].topk(2).values.tolist()
            if nearest[0] == before:
                continue  # nothing was left out
            before = nearest[0]
            found = looked.log_probabilities(weights[None])[:, 0].numpy()
            share = weights / weights.sum()
            point = {
                "label": own.get(label, label),
                "auroc": _auroc(found, present),
                "times": float(average_precision(torch.from_numpy(found)[:, None], looked.targets[:, [row]]))
                / present.mean(),
                "similarity": nearest[0],
                "similarity - mean": nearest[0] - float(similar[row][left].mean()),
                "margin": nearest[0] - nearest[1],
                "largest weight": float(share.max()),
                "spread, negative": -1 / float((share**2).sum()),
            }
            if cap is None and groups[row]:  # these count as known
                point |= {
                    "similarity": 1,
                    "similarity - mean": 1,
                    "margin": 1,
                    "largest weight": 1,
                    "spread, negative": -1,
                }
            yield point


def _auroc(values: np.ndarray, truth: np.ndarray) -> float:
    """Return the probability that a positive is above a negative."""
    ranks = scipy.stats.rankdata(values)[truth]
    return float((ranks.mean() - (len(ranks) + 1) / 2) / (~truth).sum())


def _lowest_limit(values: np.ndarray, truth: np.ndarray) -> float:
    """Return the lowest limit above which the wanted fraction is true."""
    order = np.argsort(-values, kind="stable")
    right = truth[order].cumsum() / np.arange(1, len(order) + 1)
    return float(values[order][np.flatnonzero(right >= PRECISION)[-1]])


def _facts(model: Classifier, labels: list[str]) -> dict[str, Tensor]:
    """Return what is known about each label without images, ``[L]``, its own trained output left out."""
    classes, weights = load_classes(model.backbone.name), _own_left_out(model, labels)
    match = match_classes(open_encoder(), LabelSpace(labels), classes.names, classes.synsets)
    spread = weights.sum(1).square() / weights.square().sum(1)
    return {"similarity": match.similarity, "spread of the match": spread.log()}


def _calibrate(test: tuple[Tensor, Tensor], fit: tuple[Tensor, Tensor], facts: dict[str, Tensor]) -> None:
    """Fit scale and bias without a tenth of the labels in turn, and print the calibration error on those.

    Also a scale and a bias of each label, linear in the facts about it and in its prior, the mean of its logs.
    """
    count = len(facts["similarity"])
    (truth, z), (fit_truth, fit_z) = ([each[:, :count] for each in part] for part in (test, fit))
    print("fitted on all labels: scale {:.3f}, bias {:.3f}".format(*_logistic(_inputs(fit_z), fit_truth).tolist()))
    folds = torch.as_tensor(np.random.default_rng(0).permutation(count) % 10)
    found = {}
    for name, fact in ({"left out": None} | facts | {"prior": fit_z.mean(0)}).items():
        scores = torch.zeros_like(z)
        for fold in range(10):
            rest = folds != fold
            weights = _logistic(_inputs(fit_z, fact)[:, rest], fit_truth[:, rest])
            scores[:, ~rest] = (_inputs(z, fact)[:, ~rest] @ weights).sigmoid().float()
        found[name if fact is None else f"left out, of each label by {name}"] = scores
    for name, values in (found | {"shipped": (SCALE * z + BIAS).sigmoid()}).items():
        error, above = 100 * float(calibration_error(values.reshape(-1, 1), truth.reshape(-1, 1))), values > 0.5
        each = 100 * np.mean([float(calibration_error(values[:, [row]], truth[:, [row]])) for row in range(count)])
        print(
            f"{name}: calibration error {error:.2f} over all, {each:.2f} per label; "
            f"Brier {100 * ((values - truth.float()) ** 2).mean():.2f}; "
            f"{100 * above.float().mean():.2f} % above 0.5, {100 * truth[above].float().mean():.0f} % of them right; "
            f"{100 * truth.float().mean():.2f} % present; F1 "
            + ", ".join(f"{limit}: {_f1(values > limit, truth):.3f}" for limit in (0.1, 0.2, 0.3, 0.5))
        )


def _inputs(z: Tensor, fact: Tensor | None = None) -> Tensor:
    """Return the inputs of a scale and bias ``[N, L, 2]``, or of those linear in a fact about labels, ``[N, L, 4]``."""
    inputs = torch.stack([z, torch.ones_like(z)], -1).double()
    if fact is None:
        return inputs
    return torch.cat([inputs, inputs * ((fact - fact.mean()) / fact.std())[:, None]], -1)


def _f1(chosen: Tensor, truth: Tensor) -> float:
    return float(2 * (chosen & truth).sum() / (chosen.sum() + truth.sum()))


def _logistic(inputs: Tensor, truth: Tensor) -> Tensor:
    """Return the weights of a logistic regression, by Newton's method."""
    inputs, labels = inputs.flatten(0, 1), truth.flatten().double()
    weights = inputs.new_zeros(inputs.shape[1])
    for _ in range(20):
        scores = (inputs @ weights).sigmoid()
        slope = inputs * (scores * (1 - scores))[:, None]
        weights -= torch.linalg.solve(slope.t() @ inputs, inputs.t() @ (scores - labels))
    return weights


if __name__ == "__main__":
    main()
