from functools import partialmethod

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

from manylabel import heads
from manylabel.errors import TrainingError
from manylabel.losses import AsymmetricLoss, BinaryCrossEntropy, CrossEntropy, positive_weights
from manylabel.training import ClassificationTask, RunFolder, fit
from manylabel.types import Batch
from tiny_training import NUM_LABELS, TinyLoader, tiny_loaders, tiny_run, tiny_settings, tiny_task


def test_images_go_through_the_model_and_features_through_the_head():
    settings = tiny_settings()
    images = Batch(torch.rand(2, 3, 4, 4), torch.zeros(2, 1), torch.ones(2, 1).bool(), torch.arange(2))
    convolution = nn.Sequential(nn.Conv2d(3, 1, 4), nn.Flatten())
    assert ClassificationTask(convolution, nn.Identity(), settings=settings)(images).shape == (2, 1)
    assert tiny_task(settings)(next(iter(tiny_loaders(settings).val))).shape == (4, NUM_LABELS)


def test_each_part_of_a_head_that_averages_has_a_loss_and_a_distance_of_its_own():
    settings = tiny_settings()
    batch = next(iter(tiny_loaders(settings).val))
    parts = torch.randn(2 * len(batch), NUM_LABELS)
    task = ClassificationTask(nn.Identity(), BinaryCrossEntropy(), settings=settings, distillation=ToZero())
    task.forward = lambda _: parts
    losses = [
        0.75 * task.loss(logits, batch.targets, batch.known) + 0.25 * logits.square().mean()
        for logits in parts.split(len(batch))
    ]
    torch.testing.assert_close(task.objective(batch), sum(losses) / 2)


class ToZero:
    weight = 0.25

    def __call__(self, batch, logits):
        assert len(logits) == len(batch)
        return logits.square().mean()


@pytest.mark.slow
def test_training_lowers_the_loss(tmp_path):
    _, rows = tiny_run(tmp_path / "run", epochs=8, learning_rate=0.1)
    assert rows[-1]["train_loss"] < 0.9 * rows[0]["train_loss"]


def test_map_is_that_of_the_averaged_weights_over_all_validation_images(tmp_path):
    task, rows = tiny_run(tmp_path / "run")
    val = tiny_loaders(task.settings).val
    with torch.no_grad():
        scores = torch.cat([task.eval()(batch).sigmoid() for batch in val])
    expected = average_precision_score(val.targets, scores)
    assert rows[-1]["val_mAP"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_and_another_another(tmp_path):
    first, again, other = (
        tiny_run(tmp_path / name, epochs=1, seed=seed)[0].state_dict()
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_single_labels_are_evaluated_by_accuracy_too(tmp_path):
    settings = tiny_settings()
    torch.manual_seed(0)
    task = ClassificationTask(
        heads.LinearClassifier(8, NUM_LABELS), CrossEntropy(), settings=settings, single_label=True
    )
    loaders = tiny_loaders(settings)
    for loader in (loaders.train, loaders.val):
        loader.targets = nn.functional.one_hot(loader.targets.argmax(1), NUM_LABELS).float()
    rows = fit(task, loaders, run=RunFolder.open(tmp_path / "run"))
    with torch.no_grad():
        logits = torch.cat([task(batch) for batch in loaders.val])
    expected = (logits.argmax(1) == loaders.val.targets.argmax(1)).float().mean()
    assert rows[-1]["val_accuracy"] == pytest.approx(float(expected))


def test_accumulated_batches_count_as_one_step(tmp_path):
    _, rows = tiny_run(tmp_path / "run", accumulate=4)
    assert rows[-1]["step"] == 3 * 2  # 6 batches: a step after 4 and one after the last 2
    assert rows[-1]["learning_rate"] == pytest.approx(0.01 / 25e4)  # the schedule has come to its end
    assert rows[1]["learning_rate"] > 0.001


def test_a_loss_that_is_not_finite_ends_the_run_with_advice(tmp_path):
    class Broken(nn.Module):
        def forward(self, logits, targets, known):
            return (logits * float("nan")).sum()

    settings = tiny_settings()
    task = ClassificationTask(heads.LinearClassifier(8, NUM_LABELS), Broken(), settings=settings)
    with pytest.raises(TrainingError, match=r"loss became nan in epoch 1, batch 1.*lower learning_rate \(now 0\.01\)"):
        tiny_run(tmp_path / "run", task=task)


def test_inputs_that_are_not_finite_are_told_apart_from_a_high_learning_rate(tmp_path):
    settings = tiny_settings()
    task = tiny_task(settings)
    loaders = tiny_loaders(settings)
    loaders.train.features[:] = float("inf")
    with pytest.raises(TrainingError, match="inputs of batch 0 are not finite; check the images with index"):
        task.training_step(next(iter(loaders.train)), 0)


def test_memory_that_runs_out_is_told_with_what_to_do(tmp_path):
    class Huge(nn.Module):
        def forward(self, logits, targets, known):
            return logits.sum() + torch.empty(2**60).sum()

    task = ClassificationTask(heads.LinearClassifier(8, NUM_LABELS), Huge(), settings=tiny_settings())
    with pytest.raises(TrainingError, match="memory ran out with batch_size 4; try batch_size 2 with accumulate 2"):
        tiny_run(tmp_path / "run", task=task)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_every_optimizer_takes_every_schedule(tmp_path, optimizer, schedule):
    _, rows = tiny_run(tmp_path / "run", epochs=1, optimizer=optimizer, schedule=schedule)
    assert rows[-1]["learning_rate"] == pytest.approx(0.01 if schedule == "constant" else 0.0)


def test_bfloat16_trains(tmp_path):
    _, rows = tiny_run(tmp_path / "run", epochs=1, precision="bfloat16")
    assert rows[0]["train_loss"] > 0


class Depthwise(nn.Module):
    """Large and small depthwise convolutions before a linear classifier; records the types and sizes of kernels."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(*(nn.Conv2d(8, 8, size, padding=size // 2, groups=8) for size in (3, 5, 3)))
        self.linear = nn.Linear(8, NUM_LABELS)
        self.seen = set()

    def forward(self, features):
        maps = features[0]
        for layer in self.convolutions:
            maps = layer(maps)
            self.seen.add((layer.kernel_size[0], maps.dtype))
        return self.linear(maps.mean(dim=(2, 3)))


def test_in_bfloat16_only_large_depthwise_convolutions_stay_in_float32(tmp_path):
    model, settings = Depthwise(), tiny_settings(epochs=1, precision="bfloat16", ema_decay=0.0)
    tiny_run(tmp_path / "run", task=ClassificationTask(model, AsymmetricLoss(), settings=settings))
    assert model.seen == {(3, torch.bfloat16), (5, torch.float32)}
    with torch.autocast("cpu", torch.bfloat16):
        assert model.convolutions[1](torch.rand(1, 8, 4, 4)).dtype == torch.bfloat16  # only during training


@pytest.mark.slow
def test_a_compiled_model_learns_the_same_and_is_not_compiled_afterwards(tmp_path, monkeypatch):
    seen = []

    def traced(graph, _inputs):  # a backend that needs no C++ compiler
        seen.append(graph)
        return graph.forward

    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=traced))
    losses, names = [], []
    for is_compiled in (False, True):
        task = tiny_task(tiny_settings(compile=is_compiled), dropout=0.0)
        _, rows = tiny_run(tmp_path / str(is_compiled), task=task)
        losses.append([row["val_loss"] for row in rows])
        names.append(list(task.model.state_dict()))
        assert task.model._compiled_call_impl is None
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert names[0] == names[1]
    assert seen


class Listening(BinaryCrossEntropy):
    """Records what it is told."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def fit(self, targets):
        self.heard.append(targets.shape)

    def start_epoch(self, epoch, num_epochs):
        super().start_epoch(epoch, num_epochs)
        self.heard.append((epoch, num_epochs))

    def treat_unknown(self, logits, targets, known, images):
        if self.training:
            self.heard.append(sorted(images.tolist()))
            self.memory["steps"] = self.memory.get("steps", torch.zeros(())) + 1
        return super().treat_unknown(logits, targets, known, images)


def test_a_loss_hears_of_the_targets_the_epochs_and_the_images_and_remembers_when_resumed(tmp_path):
    settings = tiny_settings(epochs=2, batch_size=22, ema_decay=0.0)
    task = tiny_task(settings)
    task.loss = Listening()
    tiny_run(tmp_path / "run", task=task, epochs=2, batch_size=22, ema_decay=0.0)
    everyone = list(range(22))
    assert task.loss.heard == [(22, NUM_LABELS), (0, 2), everyone, (1, 2), everyone]
    resumed = tiny_task(settings)
    resumed.loss = Listening()
    tiny_run(tmp_path / "run", task=resumed, epochs=2, batch_size=22, ema_decay=0.0)
    assert resumed.loss.memory["steps"] == 2


def test_positives_are_weighted_by_the_frequencies_of_the_training_set(tmp_path):
    task, _ = tiny_run(tmp_path / "run", epochs=1, positive_weights=True)
    expected = positive_weights(tiny_loaders(task.settings).train.dataset_targets)
    torch.testing.assert_close(task.loss.positive_weights, expected)


def test_unknown_labels_that_count_as_absent_count_in_the_weights_too(tmp_path, monkeypatch):
    settings = tiny_settings(epochs=1, positive_weights=True)
    complete = tiny_loaders(settings).train.dataset_targets
    monkeypatch.setattr(TinyLoader, "dataset_targets", complete.forget_absent())
    task = tiny_task(settings)
    task.loss = AsymmetricLoss(unknown="negative")
    tiny_run(tmp_path / "run", task=task, epochs=1, positive_weights=True)
    torch.testing.assert_close(task.loss.positive_weights, positive_weights(complete))
