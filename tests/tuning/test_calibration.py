import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from manylabel.tuning import fit_platt, fit_temperature


def example(num_images=300, num_labels=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.rand(num_images, num_labels, generator=generator) < 0.3
    noise = torch.randn(num_images, num_labels, generator=generator)
    known = torch.rand(num_images, num_labels, generator=generator) < 0.9
    return 3 * (2 * targets - 1 + 1.5 * noise) + torch.arange(num_labels), targets, known


def log_loss(logits, truth):
    return np.logaddexp(0, logits) - truth * logits


def test_the_temperature_is_that_of_a_slow_search():
    logits, targets, known = example()
    z, y = logits[known].double().numpy(), targets[known].double().numpy()
    grid = np.exp(np.linspace(-3, 3, 6001))
    expected = grid[np.argmin([log_loss(z / temperature, y).sum() for temperature in grid])]
    assert fit_temperature(logits, targets, known) == pytest.approx(expected, rel=2e-3)


def test_the_temperature_of_one_label_per_image_is_that_of_a_slow_search():
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(200, 5, generator=generator)
    chosen = torch.distributions.Categorical(logits=logits / 2.5).sample()
    targets = torch.nn.functional.one_hot(chosen, 5).bool()
    grid = np.exp(np.linspace(-2, 3, 2001))
    losses = [torch.nn.functional.cross_entropy(logits / temperature, chosen).item() for temperature in grid]
    found = fit_temperature(logits, targets, torch.ones_like(targets), single_label=True)
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=5e-3)


def test_the_temperature_of_one_label_leaves_out_images_without_a_known_one():
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(200, 5, generator=generator)
    chosen = torch.distributions.Categorical(logits=logits / 2.5).sample()
    targets = torch.nn.functional.one_hot(chosen, 5).bool()
    known = torch.ones_like(targets)
    known[120:] = False
    targets[160:] = False
    expected = fit_temperature(logits[:120], targets[:120], known[:120], single_label=True)
    assert fit_temperature(logits, targets, known, single_label=True) == pytest.approx(expected)


def test_platts_numbers_are_those_of_a_general_optimiser():
    logits, targets, known = example()
    fit = fit_platt(logits, targets, known)
    assert fit.fitted.all()
    for label in range(4):
        rows = known[:, label]
        z, y = logits[rows, label].double().numpy(), targets[rows, label].numpy()
        soft = np.where(y, (y.sum() + 1) / (y.sum() + 2), 1 / ((~y).sum() + 2))
        slow = minimize(lambda ab, z=z, soft=soft: log_loss(ab[0] * z + ab[1], soft).sum(), [1.0, 0.0], tol=1e-10)
        assert (fit.scale[label].item(), fit.shift[label].item()) == pytest.approx(slow.x, abs=2e-3)


def test_logits_that_are_all_large_are_fitted():
    # The first full step leads to logits in the thousands, as with the asymmetric loss on a frequent label.
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(80, 1, generator=generator) < 0.4
    logits = 8 + targets + 0.5 * torch.randn(80, 1, generator=generator)
    scale, shift, fitted = fit_platt(logits, targets, torch.ones_like(targets))
    assert fitted.all()
    x, y = logits.double().numpy()[:, 0], targets.numpy()[:, 0]
    soft = np.where(y, (y.sum() + 1) / (y.sum() + 2), 1 / ((~y).sum() + 2))
    best = minimize(lambda ab: log_loss(ab[0] * x + ab[1], soft).sum(), [1.0, -8.5], method="BFGS")
    assert [float(scale), float(shift)] == pytest.approx(best.x.tolist(), rel=1e-3)


def test_labels_in_blocks_are_fitted_as_together(monkeypatch):
    logits, targets, known = example()
    together = fit_platt(logits, targets, known)
    monkeypatch.setattr("manylabel.tuning.calibration.BLOCK", 1)
    torch.testing.assert_close(fit_platt(logits, targets, known).scale, together.scale, atol=1e-4, rtol=1e-4)


def test_rare_and_turned_labels_are_not_fitted():
    logits, targets, known = example()
    known = torch.ones_like(known)
    targets[:, 0] = False
    targets[:3, 0] = True
    targets[:, 1] = True
    logits[:, 2] = -logits[:, 2]
    fit = fit_platt(logits, targets, known)
    assert fit.fitted.tolist() == [False, False, False, True]
    assert fit.scale[:3].tolist() == [1.0] * 3
    assert fit.shift[:3].tolist() == [0.0] * 3


def test_a_label_that_is_told_perfectly_stays_finite():
    targets = torch.arange(40)[:, None] >= 20
    logits = torch.where(targets, 5.0, -5.0)
    fit = fit_platt(logits, targets, torch.ones_like(targets))
    scores = (logits * fit.scale + fit.shift).sigmoid()
    assert 0.9 < scores.max() < 1
    assert fit_temperature(logits, targets, torch.ones_like(targets)) > 0
