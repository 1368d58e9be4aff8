"""What every loss must do; a loss's test file subclasses a suite, lists its settings and writes its reference.

    class TestBinaryCrossEntropy(MultiLabelLossSuite):
        cases = {"mean": lambda: BinaryCrossEntropy(), "sum": lambda: BinaryCrossEntropy(reduction="sum")}

        def reference(self, loss, logits, targets, known): ...

The reference gets float64 tensors and plain Python is welcome in it; its gradients are compared too.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.targets import Targets

BATCH, LABELS = 6, 9


class LossSuite:
    """The contract of a loss: `loss(logits, targets, known) -> scalar`, exact, finite, and 0 for nothing."""

    cases: ClassVar[Mapping[str, Callable[[], nn.Module]]] = {}

    def reference(self, loss: nn.Module, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        raise NotImplementedError

    def draw_targets(self, generator: torch.Generator) -> Tensor:
        return (torch.rand(BATCH, LABELS, generator=generator) < 0.3).float()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", list(self.cases))

    @pytest.fixture
    def loss(self, case: str) -> nn.Module:
        return self.cases[case]()

    @pytest.fixture
    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        logits = 4 * torch.randn(BATCH, LABELS, generator=generator)
        known = torch.rand(BATCH, LABELS, generator=generator) < 0.6
        known[0], known[1] = False, True
        return logits, self.draw_targets(generator), known

    @pytest.mark.parametrize("all_known", [True, False])
    def test_equals_the_reference_in_value_and_gradient(self, loss, batch, all_known):
        logits, targets, known = batch
        known = torch.ones_like(known) if all_known else known
        single, double = logits.clone().requires_grad_(), logits.double().requires_grad_()
        value = loss(single, targets, None if all_known else known)
        expected = self.reference(loss, double, targets.double(), known)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("size", [1e4, 6e4])
    def test_is_finite_at_extreme_logits(self, loss, batch, dtype, size):
        logits, targets, known = batch
        logits = (size * logits.sign()).to(dtype).requires_grad_()
        value = loss(logits, targets, known)
        value.backward()
        assert value.isfinite()
        assert logits.grad.isfinite().all()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_loses_nothing_to_half_precision(self, loss, batch, dtype):
        logits, targets, known = batch
        halved = logits.to(dtype)
        value = loss(halved, targets.to(dtype), known)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, loss(halved.float(), targets, known), rtol=0, atol=0)

    def test_keeps_double_precision(self, loss, batch):
        logits, targets, known = batch
        assert loss(logits.double(), targets, known).dtype == torch.float64

    def test_is_zero_with_zero_gradient_when_nothing_is_known(self, loss, batch):
        logits, targets, known = batch
        loss.unknown = "ignore"
        logits.requires_grad_()
        value = loss(logits, targets, torch.zeros_like(known))
        value.backward()
        assert value.item() == 0
        assert (logits.grad == 0).all()

    def test_honours_no_grad(self, loss, batch):
        logits, targets, known = batch
        logits.requires_grad_()
        with torch.no_grad():
            assert not loss(logits, targets, known).requires_grad
            assert not torch.is_grad_enabled()
        assert loss(logits, targets, known).requires_grad

    def test_does_not_look_at_targets_that_are_not_known(self, loss, batch):
        logits, targets, known = batch
        other = torch.where(known, targets, 1 - targets)
        assert loss(logits, targets, known) == loss(logits, other, known)

    def test_a_target_of_minus_one_is_unknown(self, loss, batch):
        logits, targets, known = batch
        assert loss(logits, torch.where(known, targets, -1)) == loss(logits, targets, known)

    def test_changes_none_of_its_inputs(self, loss, batch):
        before = [tensor.clone() for tensor in batch]
        loss(*batch)
        assert all(torch.equal(tensor, old) for tensor, old in zip(batch, before, strict=True))

    def test_rejects_shapes_that_do_not_fit(self, loss, batch):
        logits, targets, known = batch
        with pytest.raises(ConfigError, match=r"targets must have the shape of the logits, \[6, 9\], got \[6\]"):
            loss(logits, targets[:, 0], known)
        with pytest.raises(ConfigError, match=r"known must have the shape of the logits, \[6, 9\], got \[1, 9\]"):
            loss(logits, targets, known[:1])
        with pytest.raises(ConfigError, match=r"logits must be \[images, labels\], got \[9\]"):
            loss(logits[0], targets[0], known[0])

    def test_its_repr_says_how_it_is_set(self, loss):
        assert f"reduction={loss.reduction!r}" in repr(loss)


class MultiLabelLossSuite(LossSuite):
    """What also holds when every label has a cost of its own."""

    def slow(self, loss: nn.Module, if_present, if_absent, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Add up costs one label at a time, given what a present and an absent one cost at a score."""
        total, counted = logits.new_zeros(()), 0
        for image in range(BATCH):
            hidden = [label for label in range(LABELS) if not known[image, label]]
            left_out = {"ignore": hidden, "negative": []}[loss.unknown]
            for label in set(range(LABELS)) - set(left_out):
                score = logits[image, label].sigmoid()
                if known[image, label] and targets[image, label] == 1:
                    weight = 1 if loss.positive_weights is None else loss.positive_weights[label].double()
                    total = total + weight * if_present(score)
                else:
                    total = total + if_absent(score)
                counted += 1
        return total if loss.reduction == "sum" else total / counted

    def test_what_is_left_out_gets_no_gradient(self, loss, batch):
        logits, targets, known = batch
        loss.unknown = "ignore"
        logits.requires_grad_()
        loss(logits, targets, known).backward()
        assert (logits.grad[~known] == 0).all()
        assert (logits.grad[known] != 0).any()

    def test_a_target_between_mixes_both_costs(self, loss, batch):
        logits, _, _ = batch
        present, absent = loss(logits, torch.ones_like(logits)), loss(logits, torch.zeros_like(logits))
        torch.testing.assert_close(loss(logits, torch.full_like(logits, 0.25)), 0.25 * present + 0.75 * absent)

    def test_rejects_settings_that_are_none(self, case):
        kind = type(self.cases[case]())
        with pytest.raises(ConfigError, match="reduction cannot be 'none'; available: mean, sum"):
            kind(reduction="none")
        with pytest.raises(ConfigError, match="did you mean 'ignore'"):
            kind(unknown="ignored")

    def test_rejects_weights_of_other_labels(self, case, batch):
        loss = type(self.cases[case]())(positive_weights=torch.ones(3))
        with pytest.raises(ConfigError, match=r"one number for each of 9 labels, got \[3\]"):
            loss(*batch)


class IncompleteTagsSuite(LossSuite):
    """What losses for incomplete tags must do: unknown labels count even if nothing is known."""

    def test_is_zero_with_zero_gradient_when_nothing_is_known(self, loss, batch):
        logits, targets, known = batch
        value = loss(logits, targets, torch.zeros_like(known))
        torch.testing.assert_close(
            value.double(), torch.as_tensor(self.reference(loss, logits.double(), targets, torch.zeros_like(known)))
        )

    def test_an_empty_batch_costs_nothing(self, loss):
        assert loss(torch.zeros(0, LABELS), torch.zeros(0, LABELS)) == 0

    def test_rejects_targets_without_unknown_labels(self, loss):
        with pytest.raises(ConfigError, match=r"no label of the training set is unknown; .* tags=incomplete"):
            loss.fit(Targets.from_lists([[0]], num_labels=2))


def in_epoch(loss, epoch, num_epochs=10):
    loss.start_epoch(epoch, num_epochs)
    return loss


def entropies(logit):
    """Return the cross-entropy of a label if it is present, and if it is absent."""
    score = logit.sigmoid()
    return -score.log(), -(1 - score).log()
