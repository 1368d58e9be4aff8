"""Evaluation of labels unseen in training: alone (ZSL), and together with the seen ones (GZSL).

mAP is over all images. F1 at K takes the K highest scores of an image as its labels; as in zero-shot papers, only
images with at least one of the evaluated labels count. A constant between seen and unseen labels (calibrated stacking)
changes which labels of an image come first, so F1 in GZSL, but not the order of images for a label, so not mAP.

Letters in shape comments: N images, L labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.evaluation.bootstrap import Estimate, bootstrap_weights, estimate, to_plain
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import average_precision, precision_recall
from manylabel.seeds import private_generator

TOP = (3, 5)  # K of F1 at K, as in the papers


@dataclass(frozen=True)
class ZeroShotEvaluation:
    """Zero-shot results.

    Args:
        seen: Labels of the training set.
        unseen: Labels that were not trained on.
        bias: Bias added to the logits of unseen labels for `gzsl_calibrated`.
        zsl: Metrics on unseen labels alone.
        gzsl: Metrics on all labels together.
        gzsl_calibrated: The same, with the bias.
        seen_only: Metrics on seen labels alone.
        chance: Metrics of random scores on unseen labels.
    """

    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    bias: float
    zsl: dict[str, Estimate]
    gzsl: dict[str, Estimate]
    gzsl_calibrated: dict[str, Estimate]
    seen_only: dict[str, Estimate]
    chance: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return to_plain(self)

    def to_text(self) -> str:
        """Return the main results as a sentence."""
        zsl, chance = self.zsl["mAP"], 100 * self.chance["mAP"]
        interval = "" if zsl.low is None or zsl.high is None else f" ({100 * zsl.low:.1f} to {100 * zsl.high:.1f})"
        return (
            f"{len(self.unseen)} unseen labels: mAP {100 * zsl.value:.1f}{interval}, chance {chance:.1f}; "
            f"with the {len(self.seen)} seen ones: mAP {100 * self.gzsl['mAP'].value:.1f}"
        )


def evaluate_zero_shot(
    scored: ScoredImages, *, unseen: Sequence[str], bias: float = 0.0, draws: int = 1000
) -> ZeroShotEvaluation:
    """Evaluate scores of seen and unseen labels.

    Args:
        scored: Scores of all labels, and targets.
        unseen: The labels that the model was not trained on.
        bias: Bias added to the logits of unseen labels for the calibrated result.
        draws: Number of bootstrap draws for the intervals; 0 for none.

    Raises:
        ConfigError: No label is unseen, or none is seen.

    Examples:
        >>> scores, targets = torch.rand(40, 4), torch.arange(160).reshape(40, 4) % 3 == 0
        >>> scored = ScoredImages.from_arrays(scores, targets, labels=["cat", "dog", "cow", "tram"])
        >>> evaluate_zero_shot(scored, unseen=["tram"], draws=0).seen
        ('cat', 'dog', 'cow')
    """
    columns = sorted(scored.labels.index(name) for name in unseen)
    rest = [column for column in range(len(scored.labels)) if column not in set(columns)]
    if not columns or not rest:
        raise ConfigError(
            f"some labels must be seen and some unseen, got {len(columns)} unseen of {len(scored.labels)}"
        )
    moved = scored.scores.double().logit(eps=1e-12)
    moved[:, columns] += bias
    everything = [*range(len(scored.labels))]
    parts = {
        "zsl": (columns, scored.scores),
        "gzsl": (everything, scored.scores),
        "gzsl_calibrated": (everything, moved),
        "seen_only": (rest, scored.scores),
    }
    return ZeroShotEvaluation(
        seen=tuple(scored.labels[column] for column in rest),
        unseen=tuple(scored.labels[column] for column in columns),
        bias=bias,
        **_evaluate(scored, parts, draws=draws),
        chance=_chance(scored, columns),
    )


_Parts = Mapping[str, tuple[list[int], Tensor]]
"""By name, the labels that are evaluated together and the scores ``[N, L]`` that order them within an image."""


def _evaluate(scored: ScoredImages, parts: _Parts, *, draws: int) -> dict[str, dict[str, Estimate]]:
    """Evaluate all parts at once: the average precision of a label is the same in each of them."""
    weights = bootstrap_weights(len(scored), draws=draws)
    precision = average_precision(*scored.inputs, weights=weights).double()  # [1 + D, L]
    return {
        name: {"mAP": estimate(precision[:, columns].nanmean(dim=1)), **_f1(scored, columns, scores, weights)}
        for name, (columns, scores) in parts.items()
    }


def _f1(scored: ScoredImages, columns: list[int], scores: Tensor, weights: Tensor) -> dict[str, Estimate]:
    """Return F1 at each k over the images with one of the labels."""
    positives, known = (scored.targets & scored.known)[:, columns], scored.known[:, columns]
    rows = positives.any(dim=1).nonzero().flatten()
    if not len(rows):
        names = ", ".join(scored.labels[column] for column in columns[:5])
        raise ConfigError(
            f"no image has one of the {len(columns)} labels to evaluate, such as {names}; evaluate on more images"
        )
    given = (scores[:, columns][rows], positives[rows], known[rows])
    found = {f"F1@{k}": precision_recall(*given, top_k=k, weights=weights[:, rows]).overall_f1 for k in TOP}
    return {name: estimate(values) for name, values in found.items()}


def _chance(scored: ScoredImages, columns: list[int], *, times: int = 5) -> dict[str, float]:
    """Return the metrics of random scores, averaged over a few tries."""
    generator, tries = private_generator("chance", 0), []
    for _ in range(times):
        random = replace(scored, scores=torch.from_numpy(generator.random(scored.scores.shape, np.float32)))
        tries.append(_evaluate(random, {"zsl": (columns, random.scores)}, draws=0)["zsl"])
    return {name: sum(each[name].value for each in tries) / times for name in tries[0]}
