"""No draw of ours repeats another one, least of all torch's own."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import manylabel
from manylabel.data.sampling import SeededBatches, every_image
from manylabel.heads import LinearClassifier
from manylabel.losses import BinaryCrossEntropy
from manylabel.seeds import private_generator
from manylabel.settings import LoopSettings
from manylabel.training.task import ClassificationTask


@pytest.mark.parametrize("seed", [0, 1, 42, -1, 2**63 + 5])
def test_a_private_generator_is_repeatable_for_any_seed(seed: int) -> None:
    first, again = (private_generator("queries", seed).standard_normal(8) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, private_generator("groups", seed).standard_normal(8))


def test_the_package_seeds_no_torch_generator_of_its_own() -> None:
    """A generator of torch's kind repeats ``torch.manual_seed`` whenever their seeds agree in 32 bits."""
    for path in Path(manylabel.__file__).parent.rglob("*.py"):
        code = "\n".join(line for line in path.read_text().splitlines() if ">>>" not in line)
        assert not re.search(r"Generator\([^)]*\)\.manual_seed", code), path


def test_the_first_image_of_a_batch_is_not_augmented_by_the_stream_of_the_training_step() -> None:
    [first] = next(iter(SeededBatches(every_image(1, shuffle=False), batch_size=1, seed=0)))
    task = ClassificationTask(LinearClassifier(8, 2), BinaryCrossEntropy(), settings=LoopSettings(seed=0))
    with torch.random.fork_rng(devices=[]):
        task.on_train_batch_start(batch=None, batch_idx=0)
        assert torch.initial_seed() != first.seed
