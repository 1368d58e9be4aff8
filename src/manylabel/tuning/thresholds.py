"""Per-label thresholds for the best F1, or for a target precision or recall.

Letters in shape comments: N images, L labels.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manylabel.errors import ConfigError

BLOCK = 20_000_000  # entries [N, labels] sorted at once
MOST_POOLED = 5_000_000  # entries for choosing the common threshold


@dataclass(frozen=True)
class Objective:
    """Objective of the thresholds.

    Args:
        kind: Best F1; highest recall at a precision of at least `target`; or highest precision at a recall of at least
            `target`.
        target: Target precision or recall.

    Raises:
        ConfigError: A target is missing, out of range, or given for F1.

    Examples:
        >>> Objective.parse("precision=0.9"), Objective.parse("f1").target
        (Objective(kind='precision', target=0.9), None)
    """

    kind: Literal["f1", "precision", "recall"] = "f1"
    target: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("f1", "precision", "recall"):
            raise ConfigError(f"the objective must be f1, precision=P or recall=R, got {self.kind!r}")
        if (self.target is None) != (self.kind == "f1"):
            raise ConfigError(f"write f1, precision=P or recall=R, with P and R in 0..1, got {self}")
        if self.target is not None and not 0 < self.target <= 1:
            raise ConfigError(f"a target {self.kind} must be above 0 and at most 1, got {self.target}")

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Read ``f1``, ``precision=0.9`` or ``recall=0.8``."""
        kind, _, target = text.partition("=")
        try:
            return cls(kind.strip(), float(target) if target else None)  # type: ignore[arg-type] # checked above
        except ValueError as error:
            raise ConfigError(f"the objective must be f1, precision=P or recall=R, got {text!r}") from error

    def __str__(self) -> str:
        return self.kind if self.target is None else f"{self.kind}={self.target:g}"


class Thresholds(NamedTuple):
    """Thresholds and their origin.

    Attributes:
        values: ``[L]``, score from which a label counts as present.
        too_rare: ``[L]``, true for labels with too few images, which got the common threshold.
        out_of_reach: ``[L]``, true for labels that never reach the target; likewise.
        common: Best single threshold for all labels.
    """

    values: Tensor
    too_rare: Tensor
    out_of_reach: Tensor
    common: float


def choose_thresholds(
    scores: Tensor, targets: Tensor, known: Tensor, *, objective: Objective | None = None, min_positives: int = 10
) -> Thresholds:
    """Choose a threshold for each label.

    Args:
        scores: ``[N, L]``, probabilities.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, true where that is known; the rest is ignored.
        objective: Objective (default: F1).
        min_positives: Labels with fewer images get the common threshold.

    Returns:
        The thresholds, each half-way between two scores.

    Examples:
        >>> scores = torch.tensor([[0.9], [0.6], [0.4], [0.1]])
        >>> targets = torch.tensor([[True], [True], [False], [False]])
        >>> choose_thresholds(scores, targets, torch.ones_like(targets), min_positives=1).values
        tensor([0.5000])
    """
    objective = objective or Objective()
    size = max(1, BLOCK // max(1, len(scores)))
    blocks = zip(*(torch.split(matrix, size, dim=1) for matrix in (scores, targets, known)), strict=True)
    parts = [_best_cuts(*block, objective=objective) for block in blocks]
    values, reached = (torch.cat(columns) for columns in zip(*parts, strict=True))
    step = max(1, scores.numel() // MOST_POOLED)
    pooled = (matrix[::step].reshape(-1, 1) for matrix in (scores, targets, known))  # whole rows: all labels alike
    common, common_reached = _best_cuts(*pooled, objective=objective)
    fallback = float(common) if bool(common_reached) else 0.5
    too_rare = (targets & known).sum(dim=0) < min_positives
    chosen = torch.where(too_rare | ~reached, torch.full_like(values, fallback), values)
    return Thresholds(chosen, too_rare, ~reached & ~too_rare, fallback)


def _best_cuts(scores: Tensor, targets: Tensor, known: Tensor, *, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the best threshold of each label and whether it meets the objective, both ``[L]``."""
    ranked, order = torch.where(known, scores.float(), -1.0).sort(dim=0, descending=True)  # unknown entries last
    counted = known.gather(0, order)
    present = targets.gather(0, order) & counted
    right = present.cumsum(dim=0).double()
    named = counted.cumsum(dim=0).double()
    total = right[-1:].clamp(min=1)
    lower = torch.cat([ranked[1:], torch.full_like(ranked[:1], -1.0)])
    allowed = counted & (lower < ranked)  # no cut between equal scores
    precision, recall = right / named.clamp(min=1), right / total
    quality, reached = _quality(precision, recall, 2 * right / (named + total), allowed, objective)
    best = quality.argmax(dim=0, keepdim=True)
    cut = (ranked.gather(0, best) + lower.gather(0, best).clamp(min=0)) / 2
    return cut[0], reached & (right[-1] > 0)


def _quality(
    precision: Tensor, recall: Tensor, f1: Tensor, allowed: Tensor, objective: Objective
) -> tuple[Tensor, Tensor]:
    """Return the quantity to maximise, ``[N, L]``, and whether any cut meets the objective, ``[L]``."""
    if objective.kind == "f1":
        return torch.where(allowed, f1, -1.0), torch.ones_like(allowed[0])
    held, gained = (precision, recall) if objective.kind == "precision" else (recall, precision)
    fits = allowed & (held >= float(objective.target or 0))
    return torch.where(fits, gained + 1e-9 * held, -1.0), fits.any(dim=0)
