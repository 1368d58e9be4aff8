"""Query augmentation: what is added, what its targets are, and that it can be switched off."""

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.heads import MLDecoder
from manylabel.losses import BinaryCrossEntropy
from manylabel.recipes.zero_shot import AugmentedQueries, ZeroShotTask
from manylabel.settings import LoopSettings
from manylabel.training import ClassificationTask
from manylabel.types import FeatureBatch

VECTORS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def make_head(num_groups=None):
    torch.manual_seed(0)
    text = {"queries": "text", "shared_projection": True, "text_vectors": VECTORS}
    return MLDecoder(8, 5, num_groups=num_groups, width=16, num_heads=2, feedforward=16, dropout=0.0, **text)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    targets = (torch.rand(4, 5, generator=generator) < 0.5).float()
    return FeatureBatch(
        (torch.randn(4, 8, 2, 2, generator=generator),), targets, torch.ones(4, 5).bool(), torch.arange(4)
    )


def test_switched_off_it_is_plain_training(batch):
    head, loss = make_head(), BinaryCrossEntropy()
    augmented = ZeroShotTask(AugmentedQueries(head), loss, settings=LoopSettings())
    plain = ClassificationTask(head, loss, settings=LoopSettings())
    torch.testing.assert_close(augmented.objective(batch), plain.objective(batch))
    assert len(list(augmented.model.parameters())) == len(list(head.parameters()))


@pytest.mark.parametrize("num_groups", [None, 2])
def test_random_queries_have_a_target_of_their_own(batch, num_groups):
    model = AugmentedQueries(make_head(num_groups), num_random=3)
    task = ZeroShotTask(model, BinaryCrossEntropy(reduction="sum"), settings=LoopSettings())
    torch.manual_seed(7)
    logits, random = model.augmented(batch.features)
    queries = num_groups or 5
    assert random.shape == (4, queries + 3)
    targets = torch.tensor([0.0] * queries + [1.0] * 3).expand(4, -1)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    expected = entropy(logits, batch.targets, reduction="sum") + entropy(random, targets, reduction="sum")
    torch.manual_seed(7)
    torch.testing.assert_close(task.objective(batch), expected)


def test_random_queries_do_not_change_the_labels_answers(batch):
    head = make_head()
    with_random, _ = AugmentedQueries(head, num_random=3).augmented(batch.features)
    torch.testing.assert_close(with_random, head(batch.features), atol=1e-5, rtol=1e-5)


def test_noise_changes_training_and_not_the_vectors(batch):
    head = make_head()
    model = AugmentedQueries(head, noise=0.5)
    first, second = (model.augmented(batch.features)[0] for _ in range(2))
    assert not torch.allclose(first, second)
    assert torch.equal(head.text_vectors, VECTORS)
    torch.testing.assert_close(model(batch.features), head(batch.features))


def test_gradients_reach_every_parameter(batch):
    task = ZeroShotTask(
        AugmentedQueries(make_head(2), num_random=2, noise=0.1), BinaryCrossEntropy(), settings=LoopSettings()
    )
    task.objective(batch).backward()
    assert all(parameter.grad is not None for parameter in task.parameters())


def test_rejects_heads_without_text():
    with pytest.raises(ConfigError, match="needs text queries"):
        AugmentedQueries(MLDecoder(8, 5, width=16)).augmented([torch.zeros(1, 8, 2, 2)])
