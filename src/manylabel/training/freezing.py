"""Letting a new head settle before the backbone begins to learn."""

from lightning import Callback, LightningModule, Trainer

from manylabel.backbone import Backbone

__all__ = ["FreezeFirst"]


class FreezeFirst(Callback):
    """Keeps the backbone as it is for the first epochs: no gradients, no new batch-norm statistics.

    Args:
        backbone: What to freeze.
        epochs: For how many epochs.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False)
        >>> FreezeFirst(backbone, epochs=1).hold(epoch=0)
        >>> backbone.training, any(parameter.requires_grad for parameter in backbone.parameters())
        (False, False)
    """

    def __init__(self, backbone: Backbone, *, epochs: int) -> None:
        self.backbone = backbone
        self.epochs = epochs

    def hold(self, epoch: int) -> None:
        """Freeze or free the backbone, as is right in an epoch."""
        self.backbone.freeze(epoch < self.epochs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Act on the epoch that a run begins or resumes in."""
        self.hold(trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 (Lightning's)
        """Act on a new epoch."""
        self.hold(trainer.current_epoch)
