"""Faithfulness and cost of explanations: python benchmarks/explain.py VOC2012 RUN/model [RUN/model ...].

On held-out images of VOC, for each model, method and present label: how often the maximum of the heat map lies in a box
of the label (the pointing game), and the areas under the deletion and insertion curves. Only labels with a score of at
least `--least-score` are explained. "centre" points at the middle of every image: the baseline. Times are medians of
interleaved calls in processor time, as ratios to a plain prediction.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from PIL import Image

from manylabel.classifier import Classifier
from manylabel.cost import median_seconds, peak_memory
from manylabel.data import decode, eval_transform
from manylabel.data.readers.voc import voc_boxes
from manylabel.explain import METHODS, Explanation, explain
from manylabel.explain.faithfulness import measure_faithfulness, points_at
from manylabel.recipes import Probe, open_sets
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results" / "explain.json"


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
