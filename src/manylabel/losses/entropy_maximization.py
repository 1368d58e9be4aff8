"""Entropy maximization (EM), with asymmetric pseudo-labels: the scores of unknown labels are kept uncertain.

Zhou et al., "Acknowledging the Unknown for Multi-label Learning with Single Positive Labels" (ECCV 2022,
arXiv:2203.16219). `alpha` is that for COCO and NUS-WIDE, `beta` that for NUS-WIDE. Deviation: pseudo-labels come from
the scores seen in the last epoch, where the authors pass over the training set once more.

Letters in shape comments: those of `manylabel.losses.loss`, and l for the labels sorted at once.
"""

import math

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.incomplete import IncompleteTagsLoss
from manylabel.losses.loss import Reduction
from manylabel.targets import Targets

_SORTED_AT_ONCE = 2**24  # scores; their order takes 8 bytes each


class EntropyMaximization(IncompleteTagsLoss):
    """Binary cross-entropy of known labels; the scores of unknown ones are kept uncertain (EM).

    An unknown label costs ``-alpha`` times the entropy of its score. With asymmetric pseudo-labels (APL), after a
    fraction `warmup` of all epochs, each epoch turns the unknown labels of lowest score into pseudo-labels, with that
    score as target, until a fraction `negatives` of each label's images has one. They keep four bytes for each label of
    each image.

    Args:
        alpha: Weight of the entropy.
        beta: Weight of the cross-entropy of pseudo-labels.
        negatives: Fraction of unknown labels with pseudo-labels in the end, theta in the paper; 0 for EM alone.
        warmup: Fraction of epochs without pseudo-labels.
        reduction: ``"sum"`` over images and labels, or ``"mean"``, as the authors do.

    Raises:
        ConfigError: A setting is invalid; or pseudo-labels lack the positions of images.

    Examples:
        >>> EntropyMaximization(negatives=0)(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, -1.0]]))
        tensor(0.0288)
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 0.2,
        *,
        negatives: float = 0.9,
        warmup: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        for name, value in (("negatives", negatives), ("warmup", warmup)):
            if not 0 <= value < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1, got {value}")
        self.alpha, self.beta, self.negatives, self.warmup = alpha, beta, negatives, warmup
        self._pseudo: Tensor | None = None  # of this batch, [B, L]; below 0 where there is none

    def fit(self, targets: Targets) -> None:
        """Prepare the memory of scores and pseudo-labels; both are -1 where there is none."""
        super().fit(targets)
        if self.negatives:
            self.memory["scores"] = torch.full(targets.shape, -1, dtype=torch.float16)
            self.memory["pseudo"] = torch.full(targets.shape, -1, dtype=torch.float16)
            self.memory["num_unknown"] = torch.from_numpy(len(targets) - targets.known)

    def start_epoch(self, epoch: int, num_epochs: int) -> None:
        """Turn the unknown labels of lowest score into pseudo-labels."""
        super().start_epoch(epoch, num_epochs)
        first = math.ceil(self.warmup * num_epochs)
        if not self.memory or epoch < max(first, 1):
            return
        scores, pseudo = self.memory["scores"], self.memory["pseudo"]
        numbers = (self.negatives * self.memory["num_unknown"] / (num_epochs - first)).long()  # [L]
        ranks = torch.arange(len(scores))[:, None]
        for some in torch.split(torch.arange(len(numbers)), max(1, _SORTED_AT_ONCE // len(scores))):
            waiting = scores[:, some].masked_fill(pseudo[:, some] >= 0, -1)
            lowest = waiting.masked_fill(waiting < 0, torch.inf).argsort(dim=0, stable=True)  # [N, l]
            is_low = torch.zeros_like(waiting, dtype=torch.bool).scatter_(0, lowest, ranks < numbers[some])
            pseudo[:, some] = torch.where(is_low & (waiting >= 0), waiting, pseudo[:, some])

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Remember the scores of unknown labels, and look up their pseudo-labels."""
        self._pseudo = None
        if self.training and self.negatives:
            self._pseudo = self.recall("pseudo", images).to(logits)
            scores = logits.detach().sigmoid().masked_fill(known, -1)
            self.memory["scores"][[] if images is None else images.cpu()] = scores.cpu().half()
        return super().treat_unknown(logits, targets, known, images)

    def values(self, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Return the loss of each label."""
        if_present, if_absent = self.label_losses(logits)
        scores = logits.sigmoid()
        entropy = scores * if_present + (1 - scores) * if_absent
        unknown = -self.alpha * entropy
        if self._pseudo is not None:
            mixed = self._pseudo * if_present + (1 - self._pseudo) * if_absent
            unknown = torch.where(self._pseudo >= 0, self.beta * mixed, unknown)
        return torch.where(known, targets * if_present + (1 - targets) * if_absent, unknown)
