"""Faithfulness and cost of explanations: python benchmarks/explain.py VOC2012 RUN/model [RUN/model ...].

On held-out images of VOC, for each model, method and present label: how often the maximum of the heat map lies in a box
of the label (the pointing game), and the areas under the deletion and insertion curves. Only labels with a score of at
least `--least-score` are explained. "centre" points at the middle of every image: the baseline. Times are medians of
interleaved calls in processor time, as ratios to a plain prediction.

Petsiuk et al., "RISE", 2018 (deletion and insertion); Zhang et al., "Top-down Neural Attention by Excitation Backprop",
2016 (the pointing game). Deleted pixels are blurred, not blackened: models may see black patches as objects.

Letters in shape comments: S steps, H and W pixels.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional

from manylabel.classifier import Classifier
from manylabel.cost import median_seconds, peak_memory
from manylabel.data import decode, eval_transform
from manylabel.data.readers.voc import voc_boxes
from manylabel.errors import ConfigError
from manylabel.explain import METHODS, Explanation, explain
from manylabel.recipes import Probe, open_sets
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results" / "explain.json"

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, as fractions of the image's width and height."""


@dataclass(frozen=True)
class Faithfulness:
    """Scores of a label as the hottest positions are deleted and inserted.

    Args:
        deletion: Scores with 0 to 100 % of the image blurred, hottest first; a faster drop is better.
        insertion: Scores with 0 to 100 % of the image sharp, hottest first; a faster rise is better.

    Examples:
        >>> Faithfulness((1.0, 0.0, 0.0), (0.0, 1.0, 1.0)).deletion_area
        0.25
    """

    deletion: tuple[float, ...]
    insertion: tuple[float, ...]

    @property
    def deletion_area(self) -> float:
        """Area under the deletion curve; lower is better."""
        return _area(self.deletion)

    @property
    def insertion_area(self) -> float:
        """Area under the insertion curve; higher is better."""
        return _area(self.insertion)


@torch.no_grad()
def measure_faithfulness(model: Classifier, explanation: Explanation, *, steps: int = 10) -> Faithfulness:
    """Measure the score while an image is blurred, and sharpened, step by step in the order of a heat map.

    Args:
        model: The classifier, in eval mode.
        explanation: Its explanation of a label.
        steps: Number of steps; each costs two forward passes.

    Raises:
        ConfigError: There are fewer than two steps.

    Examples:
        >>> from PIL import Image
        >>> from manylabel import heads
        >>> from manylabel.explain import explain
        >>> model = Classifier.create(
        ...     "resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False, image_size=64
        ... )
        >>> [cat] = explain(model, Image.new("RGB", (64, 64)), labels="cat")
        >>> len(measure_faithfulness(model, cat, steps=4).deletion)
        5
    """
    if steps < 2:
        raise ConfigError(f"a curve needs at least 2 steps, got {steps}")
    column = model.labels.index(explanation.label)
    device = next(model.parameters()).device
    clear = eval_transform(model.input_spec.uncropped())(explanation.image).to(device)  # [3, H, W], cropped already
    height, width = clear.shape[1:]
    size = max(height, width) // 8 * 2 + 1
    blurred = functional.gaussian_blur(clear, [size, size], [size / 4, size / 4])
    heat = torch.from_numpy(explanation.enlarged(width, height)).to(device)
    hot = _hottest_first(heat, steps)[:, None]  # [S - 1, 1, H, W]
    between = torch.cat([torch.where(hot, blurred, clear), torch.where(hot, clear, blurred)])
    logits = model(torch.cat([clear[None], blurred[None], between]))
    first, last, *curve = model.scores(logits)[:, column].tolist()
    return Faithfulness((first, *curve[: steps - 1], last), (last, *curve[steps - 1 :], first))


def points_at(explanation: Explanation, boxes: Sequence[Box]) -> bool:
    """Return true if the hottest position lies in a box of the label: one round of the pointing game.

    Args:
        explanation: Explanation of a label.
        boxes: Boxes of the label's objects.

    Examples:
        >>> from PIL import Image
        >>> explanation = Explanation(Image.new("RGB", (60, 40)), "cat", 0.9, torch.eye(2), "cam")
        >>> points_at(explanation, [(0, 0, 0.5, 0.5)]), points_at(explanation, [(0.6, 0, 1, 1)])
        (True, False)
    """
    x, y = explanation.hottest()
    return any(left <= x <= right and top <= y <= bottom for left, top, right, bottom in boxes)


def _hottest_first(heat: Tensor, steps: int) -> Tensor:
    """Return masks ``[S - 1, H, W]`` of the hottest pixels: 1 / S of them, 2 / S, and so on."""
    order = heat.flatten().argsort(descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    limits = torch.arange(1, steps, device=order.device) * len(order) / steps
    return (ranks < limits[:, None]).reshape(-1, *heat.shape)


def _area(curve: Sequence[float]) -> float:
    return (sum(curve) - (curve[0] + curve[-1]) / 2) / (len(curve) - 1)


def methods_of(model: Classifier) -> list[str]:
    """Return the methods that a model offers."""
    offered = []
    for method in METHODS[1:]:
        try:
            explain(model, Image.new("RGB", (64, 64)), labels=model.labels[0], method=method)
            offered.append(method)
        except ValueError:
            continue
    return offered


def centre(explanation: Explanation) -> Explanation:
    """Return heat that falls from the middle of the image to its rim."""
    height, width = explanation.heat.shape
    rows, columns = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
    heat = torch.exp(-2 * (rows[:, None] ** 2 + columns**2))
    return Explanation(explanation.image, explanation.label, explanation.score, heat, "centre")


def measure(model: Classifier, root: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Play the pointing game and draw curves, for every method."""
    dataset = open_sets(Probe(data=f"voc:{root},split=train")).val  # what training holds out, too
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).tolist()
    methods = methods_of(model)
    hits: dict[str, list[bool]] = {method: [] for method in [*methods, "centre"]}
    curves: dict[str, list[tuple[float, float]]] = {method: [] for method in [*methods, "centre"]}
    for index in order[: options.images]:
        name = dataset.images.name(index)
        things = [thing for thing in voc_boxes(root / "Annotations" / f"{Path(name).stem}.xml") if not thing.difficult]
        labels = list(dict.fromkeys(thing.label for thing in things))
        found = explain(model, decode(dataset.images[index]), labels=labels, method=methods) if labels else []
        found = [each for each in found if each.score >= options.least_score]
        found += [centre(each) for each in found if each.method == methods[0]]
        for each in found:
            hits[each.method].append(points_at(each, [thing.box for thing in things if thing.label == each.label]))
        if len(curves["centre"]) < options.curves and found:
            first = [each for each in found if each.label == found[0].label]
            for each in first:
                curve = measure_faithfulness(model, each, steps=options.steps)
                curves[each.method].append((curve.deletion_area, curve.insertion_area))
    return {
        method: {
            "pointing": sum(hits[method]) / len(hits[method]),
            "rounds": len(hits[method]),
            "deletion": sum(each[0] for each in curves[method]) / len(curves[method]),
            "insertion": sum(each[1] for each in curves[method]) / len(curves[method]),
            "curves": len(curves[method]),
        }
        for method in hits
    }


def measure_cost(model: Classifier, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Time explanations of 20 labels against a plain prediction, and count memory."""
    image = Image.effect_noise((500, 375), 80).convert("RGB")
    labels = list(model.labels)[:20]
    prepared = eval_transform(model.input_spec)(image)[None]
    calls = {"predict": lambda: model.predict(image)}
    for method in methods_of(model):
        calls[method] = lambda method=method: explain(model, image, labels=labels, method=method)
    with torch.no_grad():
        plain = peak_memory(lambda: model(prepared))
    seconds = median_seconds(calls, rounds=options.rounds, clock=time.process_time)  # other programs do not count
    memory = {name: plain if name == "predict" else peak_memory(call) for name, call in calls.items()}
    return {
        name: {"times_prediction": seconds[name] / seconds["predict"], "memory_times_prediction": memory[name] / plain}
        for name in calls
    }


def main() -> None:
    """Measure all models and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("voc", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--curves", type=int, default=50)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--least-score", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = {name: getattr(options, name) for name in ("images", "curves", "steps", "least_score", "rounds")}
    for folder in options.models:
        model = Classifier.from_pretrained(folder)
        found = {"cost": measure_cost(model, options), "faithfulness": measure(model, options.voc, options)}
        print(json.dumps({str(folder): found}, indent=2), flush=True)
        keep(f"{type(model.head).__name__} on {model.backbone.name}", found, settings)


def keep(name: str, found: dict[str, object], settings: dict[str, object]) -> None:
    """Add the results of a model to those of others with the same settings."""
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"settings": None}
    models = before["models"] if before["settings"] == settings else {}
    text = json.dumps({"settings": settings, "models": models | {name: found}}, indent=2)
    write_text(RESULTS, text + "\n", overwrite=True)


if __name__ == "__main__":
    main()
