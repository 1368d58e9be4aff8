"""Two labels against each other over several models: HSQ's Figures 3, 4 and 7.

Yin et al., "Hybrid Sharing for Multi-Label Image Classification": a model that treats like labels alike has a small gap
between their average precisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from manylabel.errors import ConfigError
from manylabel.evaluation.evaluate import Evaluation

__all__ = ["LabelPair", "label_pair"]


@dataclass(frozen=True)
class LabelPair:
    """The average precision of two labels by one model.

    Args:
        model: What the model is called.
        first: Of the first label.
        second: Of the second label.

    Examples:
        >>> round(LabelPair("hsq", 0.9, 0.95).gap, 2)
        0.05
    """

    model: str
    first: float
    second: float

    @property
    def gap(self) -> float:
        """How far the two are apart; less is better."""
        return abs(self.first - self.second)


def label_pair(evaluations: Sequence[Evaluation], first: str, second: str) -> list[LabelPair]:
    """Put two labels against each other over several models.

    Args:
        evaluations: One for each model.
        first: A label.
        second: Another one.

    Returns:
        One entry for each model, in the order given.

    Raises:
        ConfigError: An evaluation has no average precision of a label.

    Examples:
        >>> from manylabel.evaluation import ScoredImages, evaluate
        >>> scores, targets = [[0.9, 0.6], [0.1, 0.7], [0.2, 0.3]], [[1, 1], [0, 0], [0, 1]]
        >>> scored = ScoredImages.from_arrays(scores, targets, labels=["cow", "horse"])
        >>> [pair] = label_pair([evaluate(scored, draws=0)], "cow", "horse")
        >>> round(pair.first, 3), round(pair.second, 3)
        (1.0, 0.583)
    """
    pairs = []
    for evaluation in evaluations:
        values = {label.name: label.value for label in evaluation.labels if label.positives}
        for label in (first, second):
            if label not in values:
                raise ConfigError(f"{evaluation.model} was judged on no picture of {label!r}; choose other labels")
        pairs.append(LabelPair(evaluation.model, values[first], values[second]))
    return pairs
