"""Likely wrong and likely missing labels from out-of-sample scores: confident learning, for all labels at once.

Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 2021,
https://arxiv.org/abs/1911.00068; for many labels, Thyagarajan et al., "Identifying Incorrect Annotations in Multi-Label
Classification Data", 2022, https://arxiv.org/abs/2211.13895. Each label is a problem of two classes. As in the paper,
a label counts as confidently present (absent) above the mean score of images that have (lack) it, and the confident
joint estimates the number of labels in error. Deviations:

- Scores are calibrated by Platt scaling first, so that labels are comparable.
- Issues are ranked by the probability that the label is wrong, by Bayes' rule from its score and the two noise rates
  (of missing and of wrong labels), and not by self-confidence. The rates are pooled over the labels: those of a single
  label rest on a handful of images. Self-confidence treats both kinds of error as equally frequent, although absent
  labels outnumber present ones by far.
- Unknown labels take no part: they are neither counted nor reported.

Letters in shape comments: N images, L labels.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from manylabel.evaluation import ScoredImages
from manylabel.page import plural, some
from manylabel.tuning import fit_platt

SMALLEST = 1e-6  # scores closer to 0 or 1 have no meaning


@dataclass(frozen=True)
class LabelIssue:
    """A label of an image that is probably in error.

    Args:
        image: Name of the image.
        label: The label.
        given: The label in the dataset.
        suggested: The opposite.
        score: Estimated probability that the given label is wrong.
        index: Position of the image in the dataset.
    """

    image: str
    label: str
    given: Literal["present", "absent"]
    suggested: Literal["present", "absent"]
    score: float
    index: int


@dataclass(frozen=True)
class IssueReport:
    """Label issues of a dataset, the most probable first.

    Args:
        dataset: Name of the dataset.
        num_images: Number of images checked.
        num_labels: Number of known labels checked, over all images.
        issues: As many as there are labels in error, by estimate.
        wrong_fraction: Estimated fraction of the present labels that are wrong.
        missing_fraction: Estimated fraction of the true labels that are missing.
        notes: Remarks, such as labels that could not be checked.
    """

    dataset: str
    num_images: int
    num_labels: int
    issues: tuple[LabelIssue, ...]
    wrong_fraction: float
    missing_fraction: float
    notes: tuple[str, ...] = ()

    @property
    def num_wrong(self) -> int:
        """Number of issues of present labels."""
        return sum(issue.given == "present" for issue in self.issues)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def find_label_issues(scored: ScoredImages, *, min_positives: int = 10) -> IssueReport:
    """Find labels that are probably wrong or missing.

    Args:
        scored: Scores of models that were not trained on the images they score, as from `cross_validate`; and the
            given labels.
        min_positives: Labels present in fewer images, or absent from fewer, are not checked.

    Returns:
        The issues, the most probable first.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> truth = torch.rand(200, 1, generator=generator) < 0.3
        >>> given = truth.clone()
        >>> given[7] = ~given[7]
        >>> scores = (6.0 * truth - 3 + torch.randn(200, 1, generator=generator)).sigmoid()
        >>> report = find_label_issues(ScoredImages.from_arrays(scores, given, labels=["cat"]))
        >>> [(issue.index, issue.label, issue.given) for issue in report.issues][:1]
        [(7, 'cat', 'present')]
    """
    found = _estimate(scored, min_positives)
    is_candidate = found.checked & ((found.scores >= 0.5) != scored.targets)
    count = min(round(found.num_wrong + found.num_missing), int(is_candidate.sum()))
    ranked = torch.where(is_candidate, found.errors, -1.0).flatten().topk(count)
    return IssueReport(
        dataset=scored.dataset,
        num_images=len(scored),
        num_labels=int(found.checked.sum()),
        issues=tuple(_issues(scored, ranked.indices, ranked.values)),
        wrong_fraction=found.num_wrong / max(int((found.checked & scored.targets).sum()), 1),
        missing_fraction=found.removed,
        notes=_notes(scored, found.checked.any(dim=0), min_positives),
    )


def error_probabilities(scored: ScoredImages, *, min_positives: int = 10) -> Tensor:
    """Return the estimated probability that each given label is wrong, ``[N, L]``; 0 where it is not checked.

    Args:
        scored: As for `find_label_issues`.
        min_positives: As for `find_label_issues`.
    """
    return _estimate(scored, min_positives).errors


class _Estimate(NamedTuple):
    """Calibrated scores, the labels that could be checked, and their probabilities of being wrong, each ``[N, L]``."""

    scores: Tensor
    checked: Tensor
    errors: Tensor
    num_wrong: float
    num_missing: float
    removed: float  # fraction of the true labels that are missing


def _estimate(scored: ScoredImages, min_positives: int) -> _Estimate:
    logits = scored.scores.double().clamp(SMALLEST, 1 - SMALLEST).logit()
    platt = fit_platt(logits, scored.targets, scored.known, min_positives=min_positives)
    logits = logits * platt.scale + platt.shift
    scores, checked = logits.sigmoid(), scored.known & platt.fitted
    present, absent = checked & scored.targets, checked & ~scored.targets
    num_wrong, num_missing = (float(count.sum()) for count in _count_errors(scores, present, absent))
    # The noise rates: of images without a label, the fraction to which it was added; of those with it, the reverse.
    added = num_wrong / max(num_wrong + int(absent.sum()) - num_missing, 1)
    removed = num_missing / max(num_missing + int(present.sum()) - num_wrong, 1)
    # The log odds that a given label is wrong, by Bayes' rule.
    if_present = math.log(max(added, SMALLEST) / max(1 - removed, SMALLEST)) - logits
    if_absent = math.log(max(removed, SMALLEST) / max(1 - added, SMALLEST)) + logits
    errors = torch.where(scored.targets, if_present, if_absent).sigmoid() * checked
    return _Estimate(scores, checked, errors, num_wrong, num_missing, removed)


def _count_errors(scores: Tensor, present: Tensor, absent: Tensor) -> tuple[Tensor, Tensor]:
    """Return the estimated numbers of wrong and of missing labels, each ``[L]``, from the confident joint."""
    mean_present = (scores * present).sum(dim=0) / present.sum(dim=0).clamp(min=1)
    mean_absent = ((1 - scores) * absent).sum(dim=0) / absent.sum(dim=0).clamp(min=1)
    has, lacks = scores >= mean_present, 1 - scores >= mean_absent
    has, lacks = has & (~lacks | (scores >= 0.5)), lacks & (~has | (scores < 0.5))  # both: the more probable one

    def errors(given: Tensor, right: Tensor, other: Tensor) -> Tensor:
        """Return the number of given labels in error: the fraction of the confident ones that are the other class."""
        contrary, confirmed = (given & other).sum(dim=0), (given & right).sum(dim=0)
        return contrary / (contrary + confirmed).clamp(min=1) * given.sum(dim=0)

    return errors(present, has, lacks), errors(absent, lacks, has)


def _issues(scored: ScoredImages, positions: Tensor, errors: Tensor) -> Iterator[LabelIssue]:
    """Yield the issues at positions of the flattened ``[N, L]``."""
    for position, error in zip(positions.tolist(), errors.tolist(), strict=True):
        row, column = divmod(position, len(scored.labels))
        present = bool(scored.targets[row, column])
        yield LabelIssue(
            image=scored.names[row],
            label=scored.labels[column],
            given="present" if present else "absent",
            suggested="absent" if present else "present",
            score=round(error, 4),
            index=int(scored.indices[row]),
        )


def _notes(scored: ScoredImages, is_checked: Tensor, min_positives: int) -> tuple[str, ...]:
    names = [scored.labels.display(scored.labels[column]) for column in (~is_checked).nonzero().flatten().tolist()]
    notes = list(scored.notes)
    if names:
        notes.append(
            f"{plural(len(names), 'label')} not checked: fewer than {min_positives} images have or lack the label, "
            f"or its scores are no better than chance: {some(names)}"
        )
    if scored.bad:
        notes.append(
            f"{plural(len(scored.bad), 'image')} could not be read: {some([each.name for each in scored.bad])}"
        )
    return tuple(notes)
