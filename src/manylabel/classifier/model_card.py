"""Model cards: README.md of a model on the Hugging Face hub."""

from pathlib import Path

import msgspec
from huggingface_hub import EvalResult, ModelCardData

from manylabel.errors import ConfigError
from manylabel.page import plural
from manylabel.predictions import InferenceSpec
from manylabel.storage import decode_json


class Interval(msgspec.Struct, frozen=True):
    """A metric with its 95 % confidence interval; None if it was not computed."""

    value: float
    low: float | None
    high: float | None


class Validation(msgspec.Struct, frozen=True):
    """Content of a run's ``validation.json``, as far as a card needs it."""

    num_images: int
    mAP: Interval  # noqa: N815 - the name in the file


def read_validation(run: Path) -> Validation:
    """Read the validation metrics of a run.

    Args:
        run: Run folder.

    Raises:
        ConfigError: The run has none.
    """
    path = run / "validation.json"
    if not path.is_file():
        raise ConfigError(f"{run} has no validation.json; pass the folder of a finished run with a validation set")
    return decode_json(path.read_bytes(), Validation, source=path)


def model_card(
    name: str,
    spec: InferenceSpec,
    *,
    architecture: str,
    validation: Validation | None = None,
    licence: str | None = None,
) -> str:
    """Return the card of a model: metadata of the hub, use, metrics, labels with thresholds, and licence.

    Args:
        name: Repository, such as ``"someone/street-tagger"``.
        spec: Labels, thresholds and preprocessing of the model.
        architecture: Head and backbone in words.
        validation: Metrics of the run that trained it, if known.
        licence: Identifier of the hub's list, such as ``"apache-2.0"`` (default: not stated).

    Examples:
        >>> from manylabel.types import InputSpec, LabelSpace
        >>> spec = InferenceSpec(LabelSpace(["cat", "dog"]), InputSpec(size=(64, 64)), thresholds=(0.4, 0.6))
        >>> card = model_card("someone/pets", spec, architecture="MLDecoder on resnet50", licence="mit")
        >>> "license: mit" in card, "| dog | 0.6 |" in card
        (True, True)
    """
    title, kind = name.rpartition("/")[2], "Single-label" if spec.single_label else "Multi-label"
    results, metrics = None, f"Not recorded. To measure them: `manylabel evaluate DATA --model {name}`."
    if validation is not None:
        score, where = validation.mAP, f"{validation.num_images:,} validation images of the training run"
        interval = "" if score.low is None or score.high is None else f"{100 * score.low:.1f} to {100 * score.high:.1f}"
        metrics = (
            f"| metric | value | 95 % interval |\n|---|---|---|\n| mAP | {100 * score.value:.1f} | {interval} |\n\n"
        )
        metrics += f"Measured on {where}. The interval is a bootstrap over images."
        value = round(100 * score.value, 2)
        results = [EvalResult("image-classification", "validation", where, "mAP", value, metric_name="mAP")]
    data = ModelCardData(
        library_name="manylabel",
        pipeline_tag="image-classification",
        tags=["manylabel", "multi-label", "image-tagging"],
        license=licence,
        model_name=title,
        eval_results=results,
    )
    height, width = spec.input_spec.size
    card = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return card.format(
        metadata=data.to_yaml().strip(),
        title=title,
        kind=kind,
        count=plural(len(spec.labels), "label"),
        architecture=architecture,
        height=height,
        width=width,
        name=name,
        metrics=metrics,
        decision=_decision(spec),
        labels=_labels(spec),
        licence=licence or "Not stated; ask the author before you use the model.",
    )


def _decision(spec: InferenceSpec) -> str:
    if spec.single_label:
        return "An image gets its most confident label."
    if spec.thresholds is None:
        return "An image gets every label with a score of at least 0.5."
    return "An image gets every label with a score of at least its threshold, tuned on validation images."


def _labels(spec: InferenceSpec) -> str:
    """Return a table of labels and thresholds, or a list of labels; a bar in a name would end a cell."""
    names = [" ".join(label.replace("|", "\\|").split()) for label in spec.labels]
    if spec.thresholds is None:
        return ", ".join(names)
    rows = (f"| {label} | {round(limit, 3):g} |" for label, limit in zip(names, spec.thresholds, strict=True))
    return "\n".join(["| label | threshold |", "|---|---|", *rows])
