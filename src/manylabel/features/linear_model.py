"""Logistic regression on features of a frozen backbone, for a quick model of all labels.

Letters in shape comments: N images, C channels, L labels.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits


def fit_linear(features: Tensor, targets: Tensor, known: Tensor, *, penalty: float, steps: int = 60) -> nn.Linear:
    """Fit logistic regression with an L2 penalty to all labels at once, by L-BFGS.

    Args:
        features: ``[N, C]``, standardised.
        targets: ``[N, L]``, 1 where a label is present.
        known: ``[N, L]``, true where that is known; the rest is ignored.
        penalty: Twice the factor of the squared weights, relative to the loss summed over images.
        steps: Maximum number of steps.

    Examples:
        >>> features, targets = torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.0], [1.0]])
        >>> (fit_linear(features, targets, torch.ones(2, 1), penalty=0.1)(features) > 0).tolist()
        [[False], [True]]
    """
    model = nn.Linear(features.shape[1], targets.shape[1])
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        losses = binary_cross_entropy_with_logits(model(features), targets, known.float(), reduction="sum")
        total = losses + penalty / 2 * model.weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return float(total.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return model.requires_grad_(False)
