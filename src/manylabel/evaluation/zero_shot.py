"""Judge a model by labels it was not trained on: alone (ZSL), and beside those it was trained on (GZSL).

mAP is over all pictures. F1 at K takes the K highest scores of a picture as its labels; as in zero-shot papers, only
pictures with at least one of the judged labels count. A constant between seen and unseen labels (calibrated stacking)
changes which labels of a picture come first, so F1 in GZSL, but not the order of pictures for a label, so not mAP.

Letters in shape comments: N pictures, L labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.evaluation.bootstrap import bootstrap
from manylabel.evaluation.estimate import Estimate, estimate
from manylabel.evaluation.measures import measure
from manylabel.evaluation.scores import ScoredPictures

__all__ = ["ZERO_SHOT_MEASURES", "ZeroShotEvaluation", "evaluate_zero_shot"]

ZERO_SHOT_MEASURES = ("mAP", "F1@3", "F1@5")


@dataclass(frozen=True)
class ZeroShotEvaluation:
    """How well unseen labels are recognised.

    Args:
        seen: The labels that were trained on.
        unseen: The labels that were not.
        bias: What was added to the logits of unseen labels for `gzsl_calibrated`.
        zsl: The measures on unseen labels alone.
        gzsl: The measures on all labels together.
        gzsl_calibrated: The same, with the bias.
        seen_only: The measures on seen labels alone.
        chance: What random scores reach on unseen labels.
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
        parts = ("zsl", "gzsl", "gzsl_calibrated", "seen_only")
        return {
            "seen": list(self.seen),
            "unseen": list(self.unseen),
            "bias": self.bias,
            **{part: {name: value.to_dict() for name, value in getattr(self, part).items()} for part in parts},
            "chance": self.chance,
        }

    def to_text(self) -> str:
        """Tell the main numbers in words."""
        zsl, chance = self.zsl["mAP"], 100 * self.chance["mAP"]
        interval = "" if zsl.low is None or zsl.high is None else f" ({100 * zsl.low:.1f} to {100 * zsl.high:.1f})"
        return (
            f"{len(self.unseen)} unseen labels: mAP {100 * zsl.value:.1f}{interval}, chance {chance:.1f}; "
            f"with the {len(self.seen)} seen ones: mAP {100 * self.gzsl['mAP'].value:.1f}"
        )


def evaluate_zero_shot(
    scored: ScoredPictures, *, unseen: Sequence[str], bias: float = 0.0, draws: int = 1000, seed: int = 0
) -> ZeroShotEvaluation:
    """Judge scores of seen and unseen labels.

    Args:
        scored: Scores of all labels beside the truth.
        unseen: The labels that the model was not trained on.
        bias: What to add to the logits of unseen labels for the calibrated result.
        draws: How often the bootstrap draws for the intervals; no intervals when 0.
        seed: Fixes the draws and the scores of chance.

    Raises:
        ConfigError: No label is unseen, or none is seen.

    Examples:
        >>> scores, targets = torch.rand(40, 4), torch.arange(160).reshape(40, 4) % 3 == 0
        >>> scored = ScoredPictures.from_arrays(scores, targets, labels=["cat", "dog", "cow", "tram"])
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
    return ZeroShotEvaluation(
        seen=tuple(scored.labels[column] for column in rest),
        unseen=tuple(scored.labels[column] for column in columns),
        bias=bias,
        zsl=_measure(_select(scored, columns), draws=draws, seed=seed),
        gzsl=_measure(scored, draws=draws, seed=seed),
        gzsl_calibrated=_measure(replace(scored, scores=moved.sigmoid().float()), draws=draws, seed=seed),
        seen_only=_measure(_select(scored, rest), draws=draws, seed=seed),
        chance=_chance(_select(scored, columns), seed=seed),
    )


def _measure(scored: ScoredPictures, *, draws: int, seed: int) -> dict[str, Estimate]:
    """Return mAP on all pictures and F1 on those that have a label."""
    found: dict[str, Estimate] = {}
    labelled = (scored.targets & scored.known).any(1)
    for part, names in ((scored, ("mAP",)), (_take(scored, labelled), ("F1@3", "F1@5"))):
        if not len(part):
            raise ConfigError("no picture to judge by has one of these labels; judge on more pictures")
        values, drawn = measure(part), bootstrap(part, draws=draws, seed=seed).measures
        found |= {name: estimate(values[name], drawn[name]) for name in names}
    return found


def _chance(scored: ScoredPictures, *, seed: int, times: int = 5) -> dict[str, float]:
    """Return what random scores reach, as the mean of a few tries."""
    generator = torch.Generator().manual_seed(seed)
    tries = [
        _measure(replace(scored, scores=torch.rand(scored.scores.shape, generator=generator)), draws=0, seed=seed)
        for _ in range(times)
    ]
    return {name: sum(each[name].value for each in tries) / times for name in ZERO_SHOT_MEASURES}


def _select(scored: ScoredPictures, columns: Sequence[int]) -> ScoredPictures:
    return ScoredPictures.from_arrays(
        scored.scores[:, columns],
        scored.targets[:, columns],
        labels=scored.labels.subset([scored.labels[column] for column in columns]),
        known=scored.known[:, columns],
        names=scored.names,
    )


def _take(scored: ScoredPictures, rows: Tensor) -> ScoredPictures:
    return ScoredPictures.from_arrays(
        scored.scores[rows],
        scored.targets[rows],
        labels=scored.labels,
        known=scored.known[rows],
        names=[name for name, kept in zip(scored.names, rows.tolist(), strict=True) if kept],
    )
