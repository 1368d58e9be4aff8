r"""Make the model that ships inside the package of a trained run: weights, ONNX graph and model card.

The whole recipe, for COCO's own folder layout (images in ``coco/train2014``):

    python tools/split_coco.py coco/annotations/instances_train2014.json --out coco/annotations
    manylabel train coco:coco,split=fit,images=coco/train2014 --val coco:coco,split=choose,images=coco/train2014 \
        --recipe finetune --train-from blocks.4 --image-size 256 --epochs 3 --head.width 256 --head.feedforward 512 \
        --loss asymmetric --out runs/first
    manylabel train coco:coco,split=fit,images=coco/train2014 --val coco:coco,split=choose,images=coco/train2014 \
        --recipe finetune --train-from blocks.4 --image-size 288 --epochs 1 --learning-rate 4e-4 --backbone-scale 0.5 \
        --start-from runs/first --start-fraction 0.4 --loss asymmetric --out runs/everyday  # warmup: 0.1 in --config
    python tools/make_builtin.py runs/everyday everyday --report coco:coco,split=report,images=coco/train2014 \
        --trained-on "74,081 images of MS-COCO 2014 train" --image-size 320 \
        --tune coco:coco,split=choose,images=coco/train2014

Weights are stored in float16, once: the graph in ``model.onnx`` reads them from ``model.safetensors``, so that
onnxruntime needs neither torch nor an export before the first prediction.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.torch import load_file, save_file
from torch import nn

from manylabel import Classifier, tuning
from manylabel.backbone.weights import EVERYDAY
from manylabel.builtin import models, sample_photos
from manylabel.data import load
from manylabel.errors import ManyLabelError
from manylabel.evaluation import Evaluation, evaluate, score
from manylabel.inference import OnnxEngine
from manylabel.inference.export import export_onnx
from manylabel.onnx_files import TRANSPOSED, WEIGHTS_KEY
from manylabel.storage import write_text

MOST_BYTES = 12_000_000
FROZEN = tuple(f"blocks.{number}." for number in range(5))  # below --train-from
MOST_DIFFERENCE = 0.01  # of a score, through the rounding of weights
FEWEST_VALUES = 64  # smaller tensors stay in the graph

CARD = """# builtin:{name}

{count} labels: {head} on `{backbone}`, {height} x {width} pixels.

| | |
|---|---|
| trained on | {trained_on} |
| command | `{command}` |
| evaluated on | {num_images:,} other images of the same dataset, used neither to train nor to choose anything |
| result | {result} |
| thresholds | {thresholds} |
| calibration | {calibration} |
| weights | float16, {megabytes:.1f} MB; scores differ by at most {difference:.1e} from float32 |

## Limits

It knows the labels below and no others, and small objects less well than large ones. The photos are of everyday scenes,
most of them from Europe and North America; expect less on drawings, documents, and aerial or medical images. Faces
are not recognised: *person* is a label like any other. Do not base decisions about people on it.

## Licence

Apache-2.0, as the package. The backbone started from EfficientNet-Lite weights (Apache-2.0). The annotations of MS-COCO
are licensed under CC BY 4.0; the photos belong to their authors on Flickr, and none of them is in this folder.

## Average precision of each label

| label | images | AP |
|---|---|---|
{labels}
"""


def main() -> None:
    """Write the folder, check it, and write its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run or model folder")
    parser.add_argument("name", help="what follows builtin:")
    parser.add_argument("--report", required=True, help="data that the model has never seen")
    parser.add_argument("--trained-on", required=True, help="the training data, in words")
    parser.add_argument("--image-size", type=int, help="height and width of images (default: as in training)")
    parser.add_argument("--tune", help="data to fit thresholds and calibration to (default: those of the run)")
    parser.add_argument("--command", help="training command (default: the one that the run recorded)")
    parser.add_argument("--folder", type=Path, default=models.FOLDER, help="where builtin models are")
    parser.add_argument("--overwrite", action="store_true")
    arguments = parser.parse_args()
    try:
        print(make(**vars(arguments)))
    except ManyLabelError as error:
        sys.exit(f"Error: {error}")


def make(
    run: Path,
    name: str,
    *,
    report: str,
    trained_on: str,
    image_size: int | None = None,
    tune: str | None = None,
    command: str | None,
    folder: Path,
    overwrite: bool,
) -> str:
    """Write the model folder and return its card."""
    trained, folder = Classifier.from_pretrained(run), folder / name
    if image_size is not None:
        trained.backbone.image_size = image_size
        trained.input_spec = replace(trained.input_spec, size=(image_size, image_size))
    if tune is not None:
        trained.thresholds = trained.calibration = None
        tuned = tuning.tune(score(trained, load(tune)))
        trained.thresholds, trained.calibration = tuned.thresholds, tuned.calibration
    fold_statistics(trained.backbone.model)
    trained.backbone.name = EVERYDAY  # whose weights these are
    trained.save_pretrained(folder, half=True, overwrite=overwrite)
    shipped = Classifier.from_pretrained(folder)
    write_graph(shipped, folder)
    before, after = trained.predict(sample_photos()), OnnxEngine(folder / "model.onnx").predict(sample_photos())
    difference = float(np.abs(before.scores - after.scores).max())
    num_bytes = sum(file.stat().st_size for file in folder.iterdir())
    if num_bytes > MOST_BYTES or difference > MOST_DIFFERENCE:
        sys.exit(f"{folder} has {num_bytes:,} bytes and scores off by {difference:.1e}; not fit to ship")
    recorded = run / "command.txt"
    command = command or (recorded.read_text(encoding="utf-8").strip() if recorded.is_file() else "not recorded")
    found = evaluate(shipped, load(report))
    height, width = shipped.input_spec.size
    card = CARD.format(
        name=name,
        count=len(shipped.labels),
        head=type(shipped.head).__name__,
        backbone=shipped.backbone.name,
        height=height,
        width=width,
        trained_on=trained_on,
        command=command,
        num_images=found.num_images,
        result=_result(found),
        thresholds="0.5 for all labels" if shipped.thresholds is None else "tuned, one for each label",
        calibration="none" if shipped.calibration is None else shipped.calibration.method,
        megabytes=num_bytes / 1e6,
        difference=difference,
        labels="\n".join(f"| {each.name} | {each.positives} | {100 * each.value:.1f} |" for each in found.labels),
    )
    write_text(folder / "README.md", card, overwrite=True)
    return card


def _result(found: Evaluation) -> str:
    chosen = {name: found.metrics[name] for name in ("mAP", "CF1", "OF1")}
    return ", ".join(
        f"{name} {100 * each.value:.1f} ({100 * each.low:.1f} to {100 * each.high:.1f})"
        for name, each in chosen.items()
    )


def fold_statistics(model: nn.Module) -> None:
    """Move the scales of trained batch norms into the convolutions before them, which leaves biases: the same function.

    Frozen layers stay as they were pretrained, so that typed labels find what these knew.
    """
    for path, module in model.named_modules():
        if path.startswith(FROZEN):
            continue
        for conv_name, norm_name in (("conv_pw", "bn1"), ("conv_dw", "bn2"), ("conv_pwl", "bn3"), ("conv_head", "bn2")):
            conv, norm = getattr(module, conv_name, None), getattr(module, norm_name, None)
            if conv is None or norm is None:
                continue
            scale = norm.weight.data / (norm.running_var + norm.eps).sqrt()
            conv.weight.data *= scale[:, None, None, None]
            norm.bias.data -= norm.running_mean * scale
            norm.weight.data.fill_(1)
            norm.running_mean.fill_(0)
            norm.running_var.fill_(1 - norm.eps)


def write_graph(classifier: Classifier, folder: Path) -> None:
    """Write ``model.onnx`` without weights: `open_session` takes them from ``model.safetensors``, by name."""
    path, file = folder / "model.onnx", folder / "model.safetensors"
    export_onnx(classifier, path, any_size=False, overwrite=True)
    graph, tensors = onnx.load(path), load_file(file)
    stored = {name: tensor.float().numpy() for name, tensor in tensors.items() if tensor.dtype == torch.float16}
    stored |= {f"{name}{TRANSPOSED}": values.T for name, values in stored.items() if values.ndim == 2}
    names: dict[str, str] = {}
    for tensor in graph.graph.initializer:
        values = numpy_helper.to_array(tensor)
        found = next((name for name, other in stored.items() if _agree(values, other)), None)
        if found is None or values.size < FEWEST_VALUES:
            continue
        names[tensor.name] = found
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=file.name)
    for node in graph.graph.node:
        del node.metadata_props[:]  # where in our code each step came from: most of the file
    path.write_bytes(graph.SerializeToString())
    save_file(tensors, file, metadata={WEIGHTS_KEY: json.dumps(names)})


def _agree(values: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Return whether an exported weight is a stored one, up to the rounding of a variance of one."""
    return values.shape == other.shape and values.size > 1 and np.allclose(values, other, rtol=2e-3, atol=1e-6)


if __name__ == "__main__":
    main()
