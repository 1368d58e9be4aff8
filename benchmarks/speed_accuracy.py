"""Speed and accuracy of backbones and image sizes in one picture: python -m benchmarks.speed_accuracy VOC --data SPEC.

For each backbone and size: the default head on frozen features (`probe`), as float32 and, where asked for, as int8;
the blocks of the network above blocks.5 trained as well (`finetune`); and logistic regression on average-pooled
features. mAP is that on held-out images; images per second are those of the exported model alone in onnxruntime, on one
core, in batches of 8, by CPU time, so that other programs do not count. Finished runs and cells are reused. The
picture shows all datasets measured so far.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from benchmarks.backbones import fit
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator
from torch import from_numpy

from manylabel.classifier import Classifier
from manylabel.images import prepare
from manylabel.inference import open_engine
from manylabel.inference.export import export_onnx, quantise
from manylabel.metrics import mean_average_precision
from manylabel.page import new_figure, write_drawing
from manylabel.recipes import Finetune, Probe, TrainAndVal, finetune, open_sets, probe
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.reporter import Reporter
from manylabel.runs import Run
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results" / "speed_accuracy.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "speed-accuracy.png"
SIZES = {"lite0": (160, 224, 256), "lite1": (160, 240, 320), "lite2": (160, 260, 320)}
INT8 = {("lite0", 224), ("lite1", 240), ("lite2", 260)}
TOPS = {("lite0", 224), ("lite0", 256)}
STYLES = {"head": "o-", "logistic regression": "s:", "head, int8": "^", "top and head": "D"}


def main() -> None:
    """Measure what is missing and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the dataset")
    parser.add_argument("--data", required=True)
    parser.add_argument("--val")
    parser.add_argument("--limit", type=int, default=2000, help="images of each part")
    parser.add_argument("--out", type=Path, default=Path("runs/speed_accuracy"))
    options = parser.parse_args()
    sets = open_sets(Probe(data=options.data, val=options.val, limit=options.limit))
    rows = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []
    for backbone, sizes in SIZES.items():
        for size in sizes:
            ways = ["logistic regression", "head"]
            ways += ["head, int8"] if (backbone, size) in INT8 else []
            ways += ["top and head"] if (backbone, size) in TOPS else []
            for way in ways:
                cell = {"data": options.name, "backbone": backbone, "size": size, "trained": way}
                if any(cell.items() <= row.items() for row in rows):
                    continue
                rows.append({**cell, "images": len(sets.train), **measure(options, sets, backbone, size, way)})
                print(rows[-1], flush=True)
                write_text(RESULTS, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", overwrite=True)
    draw(rows)


def measure(options: argparse.Namespace, sets: TrainAndVal, backbone: str, size: int, way: str) -> dict[str, float]:
    """Return the mAP and the images per second of a cell."""
    common = {"data": options.data, "val": options.val, "backbone": f"offline:efficientnet_{backbone}"}
    common |= {"image_size": size, "logger": "none", "tune": False}
    folder = options.out / f"{options.name}-{backbone}-{size}"
    if way == "logistic regression":
        setup = probe.setup(Probe(**common, head="linear", views=1), sets=sets)
        cached = cache_sets(setup, Reporter())
        train, val = (part.read(np.arange(len(part)))[-1].mean((2, 3)) for part in (cached.train, cached.val))
        (targets, known), (truth, valid) = (
            map(from_numpy, part.dataset.targets.dense()) for part in (cached.train, cached.val)
        )
        reached = mean_average_precision(fit(train, targets.float(), known)(val).sigmoid(), truth, valid)
        return {"mAP": 100 * float(reached), "speed": speed(setup.model, folder / "linear.onnx")}
    if way == "top and head":
        settings = Finetune(
            **common, train_from="blocks.5", backbone_scale=1.0, precision="bfloat16", out=folder / "top"
        )
        run = finetune(settings, sets=sets, resume=True, reporter=Reporter())
    else:
        settings = Probe(**common, precision="bfloat16", out=folder / "head")
        run = probe(settings, sets=sets, resume=True, reporter=Reporter())
    model = Classifier.from_pretrained(run.model)
    file = run.path / "model.onnx"
    if way != "head, int8":
        return {"mAP": 100 * (Run.read(run.path).mean_average_precision or 0), "speed": speed(model, file)}
    pixels = np.stack(
        [prepare(sets.train.images[place], model.input_spec) for place in range(min(100, len(sets.train)))]
    )
    quantised = quantise(file, run.path / "model.int8.onnx", pixels, overwrite=True)
    engine = open_engine(quantised.path, num_threads=1)
    scores = engine.predict(sets.val.images).scores
    values, known = sets.val.targets.dense()
    reached = mean_average_precision(from_numpy(scores), from_numpy(values), from_numpy(known))
    return {"mAP": 100 * float(reached), "speed": speed(None, quantised.path)}


def speed(model: Classifier | None, file: Path) -> float:
    """Return the images per second of CPU time; a model is exported first."""
    if model is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        export_onnx(model, file, overwrite=True)
    engine = open_engine(file, num_threads=1)
    batch = np.random.default_rng(0).integers(0, 256, (8, *engine.spec.input_spec.size, 3), dtype=np.uint8)
    seconds = []
    for _ in range(12):
        start = time.process_time()
        engine.scores(batch)
        seconds.append(time.process_time() - start)
    return len(batch) / statistics.median(seconds[2:])


def draw(rows: list[dict[str, object]]) -> None:
    """Draw a panel for each dataset."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    drawing, first = new_figure(width=5.2 * len(names), height=4.2)
    first.remove()
    for place, name in enumerate(names):
        axes = drawing.add_subplot(1, len(names), place + 1)
        for backbone, colour in zip(SIZES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            for way, style in STYLES.items():
                points = [r for r in rows if (r["data"], r["backbone"], r["trained"]) == (name, backbone, way)]
                if points:
                    label = f"{backbone.capitalize()}, {way}"
                    xs, ys = [r["speed"] for r in points], [r["mAP"] for r in points]
                    axes.plot(xs, ys, style, color=colour, label=label, markersize=5, alpha=0.9)
                    if way == "head":
                        for row in points:
                            spot = (row["speed"], row["mAP"])
                            axes.annotate(str(row["size"]), spot, xytext=(4, 4), textcoords="offset points", fontsize=7)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([50, 100, 200, 400]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FormatStrFormatter("%d"))
        count = next(row["images"] for row in rows if row["data"] == name)
        axes.set(title=f"{name}, {count:,} training images", xlabel="images per second, one core", ylabel="mAP")
        axes.grid(alpha=0.3)
        if place == 0:
            axes.legend(fontsize=7)
    write_drawing(drawing, PICTURE, overwrite=True)


if __name__ == "__main__":
    main()
