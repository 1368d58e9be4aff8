"""The measures of an evaluation: what each is called, what it means, and its value."""

from dataclasses import dataclass

from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import (
    average_precision,
    calibration,
    coverage,
    f1_at_k,
    hamming_loss,
    one_error,
    precision_recall,
    ranking_loss,
    subset_accuracy,
    top_one_accuracy,
)
from manylabel.metrics.precision_recall import PrecisionRecall

__all__ = ["MEASURES", "Measure", "measure"]


@dataclass(frozen=True)
class Measure:
    """A measure.

    Args:
        title: What it is called in tables.
        meaning: What it says, in one sentence.
        higher_is_better: Whether more of it is better.
        is_share: Whether it lies in 0..1 and is shown as per cent.
    """

    title: str
    meaning: str
    higher_is_better: bool = True
    is_share: bool = True


MEASURES: dict[str, Measure] = {
    "mAP": Measure("mAP", "Mean over labels of the average precision, as scikit-learn has it."),
    "mAP_all_points": Measure("mAP, VOC 2010", "The same with PASCAL VOC's all-point interpolation."),
    "mAP_eleven_points": Measure("mAP, VOC 2007", "The same with PASCAL VOC's older eleven points."),
    "CP": Measure("CP", "Precision at the thresholds, averaged over labels; 0 for a label never predicted."),
    "CR": Measure("CR", "Recall at the thresholds, averaged over labels."),
    "CF1": Measure("CF1", "Harmonic mean of CP and CR."),
    "OP": Measure("OP", "Precision at the thresholds, over all labels together."),
    "OR": Measure("OR", "Recall at the thresholds, over all labels together."),
    "OF1": Measure("OF1", "Harmonic mean of OP and OR."),
    "CP@3": Measure("CP, top 3", "CP when the three highest scores of each picture are the predictions."),
    "CR@3": Measure("CR, top 3", "CR when the three highest scores of each picture are the predictions."),
    "CF1@3": Measure("CF1, top 3", "Harmonic mean of these two."),
    "OP@3": Measure("OP, top 3", "OP when the three highest scores of each picture are the predictions."),
    "OR@3": Measure("OR, top 3", "OR when the three highest scores of each picture are the predictions."),
    "OF1@3": Measure("OF1, top 3", "Harmonic mean of these two."),
    "F1@3": Measure("F1@3", "What zero-shot papers call OF1 of the top 3."),
    "F1@5": Measure("F1@5", "The same with the five highest scores."),
    "ranking_loss": Measure(
        "ranking loss", "Share of (present, absent) pairs of labels in the wrong order, averaged over pictures.", False
    ),
    "coverage": Measure(
        "coverage", "How many labels one must take from the top to have all that are present.", False, is_share=False
    ),
    "one_error": Measure("one-error", "Share of pictures whose highest score is of an absent label.", False),
    "subset_accuracy": Measure("subset accuracy", "Share of pictures of which every label is right."),
    "hamming_loss": Measure("Hamming loss", "Share of all answers (picture, label) that are wrong.", False),
    "calibration_error": Measure("calibration error", "Mean distance of a score and how often it is right.", False),
    "top_1": Measure("top-1 accuracy", "Share of pictures whose highest score is of their one label."),
}
"""All measures by the names they have in files, in the order of tables."""


def measure(scored: ScoredImages) -> dict[str, float]:
    """Measure a model in every way there is; top-1 accuracy only where every picture has exactly one label.

    Args:
        scored: The scores beside the truth.

    Returns:
        A value for each measure, by its name in `MEASURES` and in that order.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 1]], labels=["cat", "dog"])
        >>> round(measure(scored)["mAP"], 4)
        0.75
    """
    judged, decided = scored.judged, scored.decided
    values = {
        "mAP": average_precision(*judged).mean(),
        "mAP_all_points": average_precision(*judged, interpolation="all_points").mean(),
        "mAP_eleven_points": average_precision(*judged, interpolation="eleven_points").mean(),
        "F1@3": f1_at_k(*judged, k=3),
        "F1@5": f1_at_k(*judged, k=5),
        "ranking_loss": ranking_loss(*judged),
        "coverage": coverage(*judged),
        "one_error": one_error(*judged),
        "subset_accuracy": subset_accuracy(*decided),
        "hamming_loss": hamming_loss(*decided),
        "calibration_error": calibration(*judged).error,
    }
    found = {name: value.item() for name, value in values.items()}
    found |= _six(precision_recall(*decided), suffix="")
    found |= _six(precision_recall(*judged, top_k=3), suffix="@3")
    if scored.has_one_label_each:
        found["top_1"] = top_one_accuracy(scored.scores, scored.targets).item()
    return {name: found[name] for name in MEASURES if name in found}


def _six(result: PrecisionRecall, *, suffix: str) -> dict[str, float]:
    values = {
        "CP": result.class_precision,
        "CR": result.class_recall,
        "CF1": result.class_f1,
        "OP": result.overall_precision,
        "OR": result.overall_recall,
        "OF1": result.overall_f1,
    }
    return {f"{name}{suffix}": value.item() for name, value in values.items()}
