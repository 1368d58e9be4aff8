"""A training run of a second, for tests of the loop."""

import torch
from lightning import Callback

from manylabel.data.sampling import SeededBatches, every_image
from manylabel.heads import MLDecoder
from manylabel.losses import AsymmetricLoss
from manylabel.settings import LoopSettings
from manylabel.targets import Targets
from manylabel.training import ClassificationTask, Loaders, RunFolder, Share, fit, shared_sampler
from manylabel.types import FeatureBatch

NUM_IMAGES, NUM_LABELS = 22, 5
ALONE = Share()


class TinyLoader:
    """Random features of few images; the same ones in every process."""

    def __init__(self, *, batch_size, shuffle, share, num_images=NUM_IMAGES):
        generator = torch.Generator().manual_seed(num_images)
        self.features = torch.randn(num_images, 8, 2, 2, generator=generator)
        self.targets = (torch.rand(num_images, NUM_LABELS, generator=generator) < 0.4).float()
        sampler = shared_sampler(every_image(num_images, shuffle=shuffle), share, even=shuffle)
        self.num_empty = 0
        self.batches = SeededBatches(sampler, batch_size=batch_size)

    @property
    def dataset_targets(self):
        return Targets.from_dense(self.targets)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for batch in self.batches:
            indices = torch.tensor([draw.index for draw in batch])
            targets = self.targets[indices]
            yield FeatureBatch((self.features[indices],), targets, torch.ones_like(targets).bool(), indices)


def tiny_settings(**changes):
    defaults = {"epochs": 3, "batch_size": 4, "device": "cpu", "logger": "none", "learning_rate": 0.01}
    return LoopSettings(**{**defaults, **changes})


def tiny_task(settings, *, dropout=0.2, **changes):
    torch.manual_seed(0)
    head = MLDecoder(8, NUM_LABELS, width=16, num_heads=2, feedforward=16, num_groups=2, dropout=dropout)
    return ClassificationTask(head, AsymmetricLoss(), settings=settings, **changes)


def tiny_loaders(settings, share=ALONE):
    return Loaders(
        train=TinyLoader(batch_size=settings.batch_size, shuffle=True, share=share),
        val=TinyLoader(batch_size=settings.batch_size, shuffle=False, share=share, num_images=9),
    )


def tiny_run(folder, *, callbacks=(), task=None, **changes):
    """Train and return the task and its rows."""
    settings = tiny_settings(**changes)
    task = task or tiny_task(settings)
    run = RunFolder.open(folder, resume=True)
    loaders = tiny_loaders(settings, Share.of_process(settings.devices))
    rows = fit(task, loaders, run=run, callbacks=callbacks)
    return task, rows


class Die(Callback):
    """Ends a run as a kill would: nothing is saved, nothing is tidied up."""

    def __init__(self, *, epoch, batch):
        self.place = (epoch, batch)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == self.place:
            raise KeyError("killed")
