"""Training task of all recipes: model, loss and metrics, on images or cached features.

Letters in shape comments: B images, L labels.
"""

from typing import Any, Protocol

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from manylabel.errors import TrainingError
from manylabel.losses import MultiLabelLoss
from manylabel.metrics import AccumulatedMetric, mean_average_precision, top_one_accuracy
from manylabel.seeds import seed_sequence
from manylabel.settings import LoopSettings
from manylabel.training.optimizers import make_optimizer, make_schedule
from manylabel.types import Batch, FeatureBatch


class DistillationTerm(Protocol):
    """Second term of the loss: the distance of a model to its teachers."""

    @property
    def weight(self) -> float:
        """Weight of the term, from 0 to 1; the label loss has weight 1 minus this."""
        ...

    def __call__(self, batch: Batch | FeatureBatch, logits: Tensor) -> Tensor:
        """Return the scalar distance for a batch and the logits ``[B, L]`` of the model."""
        ...


class ClassificationTask(LightningModule):
    """Train a model on images, or a head on cached features, and validate mAP.

    Randomness in the model (dropout) depends only on the seed and the position in the run: a resumed run continues
    exactly as an uninterrupted one.

    Args:
        model: Classifier for batches of images, or head for batches of features.
        loss: ``(logits, targets, known) -> scalar``; a `MultiLabelLoss` also gets the epoch and the images.
        settings: Optimizer, schedule and seed.
        single_label: True if every image has exactly one label; also computes accuracy.
        backbone_scale: Learning rate of the backbone relative to the head.
        distillation: Second term of the training loss, not of the validation loss. Not part of the model: neither
            saved, nor averaged, nor put into train mode.

    Examples:
        >>> from manylabel import heads, losses
        >>> task = ClassificationTask(
        ...     heads.LinearClassifier(8, 2), losses.BinaryCrossEntropy(), settings=LoopSettings()
        ... )
        >>> batch = FeatureBatch(
        ...     features=(torch.ones(4, 8, 1, 1),),
        ...     targets=torch.ones(4, 2),
        ...     known=torch.ones(4, 2, dtype=torch.bool),
        ...     indices=torch.arange(4),
        ... )
        >>> task(batch).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        *,
        settings: LoopSettings,
        single_label: bool = False,
        backbone_scale: float = 1.0,
        distillation: DistillationTerm | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.settings = settings
        self.single_label = single_label
        self.backbone_scale = backbone_scale
        self.distillation = distillation
        self.mean_average_precision = AccumulatedMetric(mean_average_precision)
        self.accuracy = AccumulatedMetric(top_one_accuracy) if single_label else None

    def forward(self, batch: Batch | FeatureBatch) -> Tensor:
        """Return logits ``[B, L]``."""
        logits: Tensor = self.model(batch.features if isinstance(batch, FeatureBatch) else batch.images)
        return logits

    def on_train_epoch_start(self) -> None:
        """Announce the epoch to the loss."""
        if isinstance(self.loss, MultiLabelLoss):
            self.loss.start_epoch(self.current_epoch, self.trainer.max_epochs or 1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the memory of the loss."""
        checkpoint["loss_memory"] = getattr(self.loss, "memory", {})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the memory of the loss."""
        if isinstance(self.loss, MultiLabelLoss):
            self.loss.memory.update(checkpoint["loss_memory"])

    def on_train_batch_start(self, batch: Batch | FeatureBatch, batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Seed the randomness of the model for this step."""
        position = self.settings.seed, self.current_epoch, batch_idx, self.global_rank
        torch.manual_seed(int(seed_sequence("training step", *position).generate_state(1)[0]))

    def objective(self, batch: Batch | FeatureBatch) -> Tensor:
        """Compute the training loss; subclasses override this.

        A model that averages others in evaluation returns the logits of all of them in training, one after the other:
        each has a loss of its own.
        """
        return torch.stack([self._loss_of(logits, batch) for logits in self(batch).split(len(batch))]).mean()

    def training_step(self, batch: Batch | FeatureBatch, batch_idx: int) -> dict[str, Tensor]:
        """Return the loss of a batch, and the loss per image for `MetricsFile`."""
        loss = self.objective(batch)
        if not loss.isfinite():
            raise TrainingError(self._not_finite(float(loss.detach()), batch, batch_idx))
        return {"loss": loss, "image_loss": self._per_image(loss.detach(), batch)}

    def validation_step(self, batch: Batch | FeatureBatch, *_: object) -> None:
        """Evaluate a batch."""
        logits: Tensor = self(batch).float()
        loss = self.loss(logits, batch.targets, batch.known)
        self.log("val_loss", self._per_image(loss, batch), batch_size=len(batch), on_epoch=True, sync_dist=True)
        scores = logits.softmax(dim=1) if self.single_label else logits.sigmoid()
        self.mean_average_precision.update(scores, batch.targets, batch.known)
        if self.accuracy is not None:
            self.accuracy.update(scores, batch.targets, batch.known)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the whole validation set."""
        self.log("val_mAP", self.mean_average_precision.compute(), sync_dist=True)
        self.mean_average_precision.reset()
        if self.accuracy is not None:
            self.log("val_accuracy", self.accuracy.compute(), sync_dist=True)
            self.accuracy.reset()

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return the optimizer and its schedule."""
        optimizer = make_optimizer(self.model, self.settings, backbone_scale=self.backbone_scale)
        total, settings = int(self.trainer.estimated_stepping_batches), self.settings
        schedule = make_schedule(optimizer, schedule=settings.schedule, warmup=settings.warmup, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _loss_of(self, logits: Tensor, batch: Batch | FeatureBatch) -> Tensor:
        images = (batch.indices,) if isinstance(self.loss, MultiLabelLoss) else ()
        loss: Tensor = self.loss(logits, batch.targets, batch.known, *images)
        if self.distillation is None:
            return loss
        weight = self.distillation.weight
        return (1 - weight) * loss + weight * self.distillation(batch, logits)

    def _per_image(self, loss: Tensor, batch: Batch | FeatureBatch) -> Tensor:
        """Return the loss per image, comparable between batch sizes and datasets."""
        return loss / len(batch) if getattr(self.loss, "reduction", "mean") == "sum" else loss

    def _not_finite(self, loss: float, batch: Batch | FeatureBatch, batch_idx: int) -> str:
        values = batch.features if isinstance(batch, FeatureBatch) else (batch.images,)
        if not all(bool(value.isfinite().all()) for value in values):
            images = batch.indices.tolist()
            return f"the inputs of batch {batch_idx} are not finite; check the images with index {images[:8]}"
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        return (
            f"the loss became {loss} in epoch {self.current_epoch + 1}, batch {batch_idx + 1}, at a learning rate of "
            f"{rate:.2g}; lower learning_rate (now {self.settings.peak_learning_rate:g}), or set clip_gradients to 1, "
            "or precision to float32"
        )
