"""Typed labels: mAP and calibration on labels that the model was never trained on.

    python benchmarks/typed_labels.py coco:DIR,split=choose --fit coco:DIR,split=fit --images 1000
    python benchmarks/typed_labels.py voc:VOCdevkit/VOC2012,split=train --images 1000
    python benchmarks/typed_labels.py voc:VOCdevkit/VOC2012,split=train --images 64 --cost 1000

Labels of the dataset that the model was trained on are left out in turn: a label is typed, and its own trained output
is not used. `as typed` is what a user gets: trained outputs where there are any. With `--fit`, scale and bias of the
scores are fitted on other images with nine tenths of the labels, and tested on the last tenth. `--cost` measures
time and memory of so many labels instead.
"""

import argparse
import resource
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from manylabel import Classifier, data
from manylabel.backbone import load_classes
from manylabel.classifier.class_match import find_synonyms, match_classes
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
    parser.add_argument("--cost", type=int, help="measure the cost of so many typed labels, and nothing else")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = Classifier.from_pretrained(arguments.model)
    if arguments.cost:
        images = data.load(arguments.data).images
        _cost(model, [images[row] for row in range(arguments.images)], arguments.cost)
        return
    test = _measure(model, arguments.data, arguments.images, arguments.skip)
    labels, targets, logs, typed = test
    print(f"| {len(targets):,} images | 15 unseen | all labels | groups |\n|---|---|---|---|")
    unseen = [labels.index(name) for name in NAMED_SPLITS["coco_65_15"] if name in labels]
    count = len([name for name in labels if name not in GROUPS])
    for variant, scores in [*zip(VARIANTS, logs, strict=True), ("as typed", typed)]:
        values = 100 * average_precision(scores, targets).numpy()
        cells = [values[rows] for rows in (unseen, range(count), range(count, len(labels)))]
        print(f"| {variant} |" + "".join(f" {np.nanmean(cell):.1f} |" if len(cell) else " |" for cell in cells))
    if arguments.fit:
        _calibrate(test, _measure(model, arguments.fit, arguments.images, arguments.skip), count)


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


def _measure(model: Classifier, spec: str, count: int, skip: int) -> tuple[list[str], Tensor, list[Tensor], Tensor]:
    """Return labels, targets ``[N, L]``, mean log probabilities of each variant ``[N, L]``, and logits as typed."""
    dataset = data.load(spec)
    dataset = dataset.subset(np.random.default_rng(0).permutation(len(dataset))[skip : skip + count])
    targets = torch.as_tensor(dataset.targets.dense()[0] > 0.5)
    labels = list(dataset.labels)
    if set(labels) >= {name for names in GROUPS.values() for name in names.split("|")}:
        rows = [[labels.index(name) for name in names.split("|")] for names in GROUPS.values()]
        targets = torch.cat([targets, torch.stack([targets[:, row].any(1) for row in rows], 1)], 1)
        labels += list(GROUPS)
    classes, encoder, wanted = load_classes(model.backbone.name), open_encoder(), LabelSpace(labels)
    plain = match_classes(encoder, wanted, classes.names).weights
    grouped = match_classes(encoder, wanted, classes.names, classes.synsets).weights
    mixed = match_classes(encoder, wanted, [*classes.names, *model.labels], classes.synsets).weights
    own = find_synonyms(encoder, labels, list(model.labels))
    for row, name in enumerate(labels):
        if name in own:
            column = len(classes.names) + model.labels.index(own[name])
            mixed[row] *= mixed[row].sum() / (mixed[row].sum() - mixed[row, column])
            mixed[row, column] = 0
    # a label that no model knows: the head then holds the pretrained classes in any case
    asked = model.with_labels([*labels, "xylophone"]).eval()
    transform, parts, start = eval_transform(model.input_spec), [], time.time()
    with torch.inference_mode():
        for first in range(0, len(dataset), 32):
            names = range(first, min(first + 32, len(dataset)))
            images = torch.stack([transform(decode(dataset.images[row])) for row in names])
            features = asked.backbone(images)
            pooled, local = asked.head._classify(features, classes, parts=PARTS)
            trained = model.scores(asked.head._trained(features))
            evidence = TRAINED_WEIGHT * trained @ mixed[:, len(classes.names) :].t()
            at = local.flatten(2).transpose(1, 2)
            rows = [(pooled @ plain.t()).clamp(min=SMALLEST).log()]
            for weights, more in ((plain, 0), (grouped, 0), (mixed[:, : len(classes.names)], evidence)):
                both = torch.stack([pooled @ weights.t(), (at @ weights.t()).amax(1)]) + more
                rows.append(both.clamp(min=SMALLEST).log().mean(0))
            parts.append([*rows, asked.classify(features)[:, :-1]])
            if first % 320 == 0:
                print(f"{first:,} of {len(dataset):,} images, {time.time() - start:.0f} s", flush=True)
    *logs, typed = (torch.cat(each) for each in zip(*parts, strict=True))
    return labels, targets, logs, typed


def _calibrate(test: tuple, fit: tuple, count: int) -> None:
    """Fit scale and bias without a tenth of the labels in turn, and print the calibration error on those."""
    (_, truth, logs, _), (_, fit_truth, fit_logs, _) = test, fit
    truth, z, fit_truth, fit_z = truth[:, :count], logs[-1][:, :count], fit_truth[:, :count], fit_logs[-1][:, :count]
    folds = torch.as_tensor(np.random.default_rng(0).permutation(count) % 10)
    scores = torch.zeros_like(z)
    for fold in range(10):
        scale, bias = _logistic(fit_z[:, folds != fold], fit_truth[:, folds != fold])
        scores[:, folds == fold] = (scale * z[:, folds == fold] + bias).sigmoid()
    print("fitted on all labels: scale {:.3f}, bias {:.3f}".format(*_logistic(fit_z, fit_truth)))
    for name, values in (("left out", scores), ("shipped", (SCALE * z + BIAS).sigmoid())):
        error, above = 100 * float(calibration_error(values.reshape(-1, 1), truth.reshape(-1, 1))), values > 0.5
        each = 100 * np.mean([float(calibration_error(values[:, [row]], truth[:, [row]])) for row in range(count)])
        print(
            f"{name}: calibration error {error:.2f} over all, {each:.2f} per label; "
            f"Brier {100 * ((values - truth.float()) ** 2).mean():.2f}; "
            f"{100 * above.float().mean():.2f} % above 0.5, {100 * truth[above].float().mean():.0f} % of them right; "
            f"{100 * truth.float().mean():.2f} % present; F1 "
            + ", ".join(f"{limit}: {_f1(values > limit, truth):.3f}" for limit in (0.1, 0.2, 0.3, 0.5))
        )


def _f1(chosen: Tensor, truth: Tensor) -> float:
    return float(2 * (chosen & truth).sum() / (chosen.sum() + truth.sum()))


def _logistic(z: Tensor, truth: Tensor) -> tuple[float, float]:
    """Return scale and bias of a logistic regression, by Newton's method."""
    inputs = torch.stack([z.flatten(), torch.ones(z.numel())], 1).double()
    weights, labels = torch.zeros(2, dtype=torch.float64), truth.flatten().double()
    for _ in range(20):
        scores = (inputs @ weights).sigmoid()
        slope = inputs * (scores * (1 - scores))[:, None]
        weights -= torch.linalg.solve(slope.t() @ inputs, inputs.t() @ (scores - labels))
    return float(weights[0]), float(weights[1])


if __name__ == "__main__":
    main()
