"""Base of the losses for incomplete tags, where a label that is not listed may still be present.

Such labels are unknown labels: ``tags=incomplete`` in a data spec makes every absent label one. Here they are mostly
treated as absent, since most of them are, and each method guards against the rest in its own way.
"""

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.losses.binary import BinaryCrossEntropy
from manylabel.targets import Targets


class IncompleteTagsLoss(BinaryCrossEntropy):
    """Cross-entropy that treats unknown labels in its own way; there must be some."""

    def fit(self, targets: Targets) -> None:
        """Check that there are unknown labels."""
        if (targets.known == len(targets)).all():
            raise ConfigError(
                f"{type(self).__name__} is for incomplete tags, but no label of the training set is unknown; if absent "
                "tags may be present, add tags=incomplete to DATA, else use another loss"
            )

    def treat_unknown(
        self, logits: Tensor, targets: Tensor, known: Tensor, images: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Treat unknown labels as absent."""
        del logits, images
        return targets, torch.ones_like(known)

    def recall(self, name: str, images: Tensor | None) -> Tensor:
        """Return what `memory` holds under a name of the images of a batch, ``[B, L]``."""
        if images is None or name not in self.memory:
            raise ConfigError(
                f"{type(self).__name__} remembers images; call fit(targets) before training, and pass the positions of "
                "the images of a batch as images="
            )
        return self.memory[name][images.cpu()]
