import torch
from timm.layers import StdConv2d
from torch import Tensor, nn

from manylabel.backbone.backbone import fold_batch_norms


class Residual(nn.Module):
    """A convolution whose output goes to a norm and past it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        found = self.first(images)
        return found + self.second(self.norm(found))


class UsedTwice(nn.Module):
    """One convolution, two norms."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.one, self.two = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        return self.one(self.convolution(images)) + self.two(self.convolution(images))


def unsettled(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def check(model: nn.Module, folded: int) -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 8)
    expected = unsettled(model)(images)
    assert fold_batch_norms(model, torch.zeros(1, 3, 8, 8)) == folded
    torch.testing.assert_close(model(images), expected, atol=1e-5, rtol=1e-5)


def test_folds_a_chain() -> None:
    check(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)), folded=1)


def test_leaves_a_norm_whose_input_is_read_elsewhere() -> None:
    check(Residual(), folded=0)


def test_leaves_a_convolution_that_is_used_twice() -> None:
    check(UsedTwice(), folded=0)


def test_leaves_a_convolution_that_standardises_its_weight() -> None:
    check(nn.Sequential(StdConv2d(3, 4, 3), nn.BatchNorm2d(4)), folded=0)


def test_leaves_a_norm_before_the_convolution() -> None:
    check(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), folded=0)
