"""Every head, at a usual size, starts undecided whatever seed torch was given."""

import pytest
import torch

from manylabel.heads import HEADS

TEXT = {"text_vectors": torch.randn(40, 64, generator=torch.Generator().manual_seed(99))}
SETTINGS = {
    "conse": TEXT,
    "ml_decoder": {"width": 128, "feedforward": 256},
    "text_map": TEXT,
    "token_encoder": {"width": 128, "num_layers": 1},
}
START = {"text_map": -2.0}  # a bias, as most labels are absent


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.slow
def test_the_mean_logit_starts_near_zero_for_every_seed(name: str) -> None:
    drawn = torch.Generator().manual_seed(98)
    final, earlier = (torch.randn(4, 64, size, size, generator=drawn) for size in (3, 6))
    is_mixed = name == "rm"
    for seed in range(21):
        torch.manual_seed(seed)
        head = HEADS[name]((64, 64) if is_mixed else 64, 40, **SETTINGS.get(name, {})).eval()
        with torch.no_grad():
            mean = head([earlier, final] if is_mixed else [final]).mean().item()
        assert abs(mean - START.get(name, 0.0)) < 1.0, (seed, mean)
