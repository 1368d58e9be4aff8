"""Fit a calibration: one temperature for all labels, or Platt scaling per label.

Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017); Platt, "Probabilistic Outputs for Support Vector
Machines" (1999), with his softened targets, which avoid scores of 0 or 1 for perfectly separated labels. Both problems
are convex: the temperature is fitted by L-BFGS, Platt's pairs by Newton's method with step halving.

Letters in shape comments: N images, L labels.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

STEPS = 40
LARGEST = math.log(1000)  # bound of the log temperature: separable data have no optimum
BLOCK = 20_000_000  # entries [N, labels] processed at once


class PlattFit(NamedTuple):
    """Parameters of Platt scaling.

    Attributes:
        scale: ``[L]``, factor of the logits.
        shift: ``[L]``, bias added afterwards.
        fitted: ``[L]``, true where the data sufficed; otherwise scale is 1 and shift 0.
    """

    scale: Tensor
    shift: Tensor
    fitted: Tensor


def fit_temperature(logits: Tensor, targets: Tensor, known: Tensor, *, single_label: bool = False) -> float:
    """Return the temperature that maximises the likelihood of the targets.

    Args:
        logits: ``[N, L]``.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, true where that is known.
        single_label: Whether scores are a softmax over labels; images without a known label are then ignored.

    Returns:
        The divisor of the logits.

    Examples:
        >>> logits = torch.tensor([[4.0], [4.0], [4.0], [-4.0]])
        >>> targets = torch.tensor([[True], [True], [False], [False]])
        >>> round(fit_temperature(logits, targets, torch.ones_like(targets)), 2)
        3.64
    """
    values, truth, weights = logits.double(), (targets & known).double(), known.double()
    if single_label:
        rows = truth.any(dim=1)
        values, truth = values[rows], F.normalize(truth[rows], p=1, dim=1)  # several labels split the weight of one
    # The loss is convex in the scale, so it has a single minimum in the logarithm.
    log_scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_scale], max_iter=STEPS, tolerance_change=1e-12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scaled = values * log_scale.clamp(-LARGEST, LARGEST).exp()
        if single_label:
            total = -(truth * scaled.log_softmax(dim=1)).sum()
        else:
            total = F.binary_cross_entropy_with_logits(scaled, truth, weights, reduction="sum")
        mean = total / max(1, len(values))
        mean.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return mean

    optimizer.step(loss)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return math.exp(-min(max(log_scale.item(), -LARGEST), LARGEST))


def fit_platt(logits: Tensor, targets: Tensor, known: Tensor, *, min_positives: int = 10) -> PlattFit:
    """Return the scale and shift of each label that maximise the likelihood of the targets.

    Args:
        logits: ``[N, L]``.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, true where that is known.
        min_positives: Minimum number of images with, and without, a label to fit it. Labels whose logits decrease with
            presence are not fitted either.

    Returns:
        Scale and shift of each label.

    Examples:
        >>> logits = torch.tensor([[-3.0], [-1.0], [1.0], [3.0]])
        >>> fit = fit_platt(logits, torch.tensor([[False], [True], [True], [True]]), logits < 9, min_positives=1)
        >>> fit.fitted.item(), fit.shift.item() > 0
        (True, True)
    """
    size = max(1, BLOCK // max(1, len(logits)))
    blocks = zip(*(torch.split(matrix, size, dim=1) for matrix in (logits, targets, known)), strict=True)
    parts = [_fit_block(*block, min_positives=min_positives) for block in blocks]
    return PlattFit(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _fit_block(logits: Tensor, targets: Tensor, known: Tensor, *, min_positives: int) -> PlattFit:
    """Fit a block of labels at once."""
    weights = known.double()
    positives, negatives = ((known & chosen).sum(dim=0).double() for chosen in (targets, ~targets))  # [L]
    soft = torch.where(targets, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    count = weights.sum(dim=0).clamp(min=1)
    centre = (weights * logits.double()).sum(dim=0) / count
    spread = ((weights * (logits.double() - centre).square()).sum(dim=0) / count).sqrt().clamp(min=1e-6)
    values = (logits.double() - centre) / spread
    scale, shift = spread.clone(), centre.clone()  # the identity
    loss, step = _platt_loss(values, soft, weights, scale, shift)
    enough = 1e-8 * float(count.max())  # smaller changes of the loss are rounding errors, or do not matter
    for _ in range(STEPS):
        length = torch.ones_like(loss)
        for _ in range(12):
            tried = scale - length * step[0], shift - length * step[1]
            new, next_step = _platt_loss(values, soft, weights, *tried)
            worse = ~(new <= loss + enough)
            if not worse.any():
                break
            length = torch.where(worse, length / 2, length)
        gained = torch.where(worse, 0.0, loss - new)
        scale, shift, loss, step = (
            torch.where(worse, old, now)
            for old, now in ((scale, tried[0]), (shift, tried[1]), (loss, new), (step, next_step))
        )
        if float(gained.max()) < enough:
            break
    fitted = (positives >= min_positives) & (negatives >= min_positives) & (scale > 1e-3 * spread)
    final = scale / spread
    return PlattFit(
        torch.where(fitted, final, 1.0).float(), torch.where(fitted, shift - final * centre, 0.0).float(), fitted
    )


def _platt_loss(values: Tensor, soft: Tensor, weights: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each label ``[L]`` and the Newton step of scale and shift ``[2, L]``: one sigmoid for both."""
    logits = values * scale + shift
    scores = logits.sigmoid()
    # binary_cross_entropy_with_logits, faster in float64; exact where a sigmoid is 0, or a full step would look good
    losses = logits.clamp(min=0) - soft * logits - torch.maximum(scores, 1 - scores).log()
    errors, bends = weights * (scores - soft), weights * scores * (1 - scores)
    slope_scale, slope_shift = (errors * values).sum(dim=0), errors.sum(dim=0)
    bent = bends * values
    scale_scale, both, shift_shift = (bent * values).sum(dim=0) + 1e-9, bent.sum(dim=0), bends.sum(dim=0) + 1e-9
    determinant = (scale_scale * shift_shift - both.square()).clamp(min=1e-12)
    step = torch.stack([shift_shift * slope_scale - both * slope_shift, scale_scale * slope_shift - both * slope_scale])
    return (weights * losses).sum(dim=0), step / determinant
