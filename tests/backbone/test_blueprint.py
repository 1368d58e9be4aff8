import pytest
import torch
from torch import Tensor, nn

from manylabel.backbone.blueprint import module_outputs
from manylabel.errors import ConfigError


class Pair(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images, images


def test_catches_the_outputs_of_modules() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Flatten())
    images = torch.randn(1, 2, 3)
    (first,), result = module_outputs(model, ["0"], lambda: model(images))
    torch.testing.assert_close(first, images.relu())
    assert result.shape == (1, 6)
    assert not model[0]._forward_hooks


@pytest.mark.parametrize(
    ("path", "message"), [("5", "Sequential does not have all of the modules 5"), ("1", "1 of Sequential returns no")]
)
def test_names_modules_without_a_map(path: str, message: str) -> None:
    model = nn.Sequential(nn.ReLU(), Pair())
    with pytest.raises(ConfigError, match=message):
        module_outputs(model, [path], lambda: model(torch.zeros(1)))
    assert not any(module._forward_hooks for module in model)
