import pytest
import torch
from torch import Tensor

from conformance.head_suite import HeadSuite
from manylabel.cost import count_parameters
from manylabel.errors import ConfigError
from manylabel.heads import RepresentationMixupHead


class TestRepresentationMixupHead(HeadSuite):
    channels = (12, 24)
    cases = {
        "convolution": lambda: RepresentationMixupHead((12, 24), 7),
        "tokens": lambda: RepresentationMixupHead((12, 24), 7, summary="tokens"),
    }
    tells = {"tokens": ["in_channels=(12, 24)", "stages=(0, -1)", "summary='tokens'"]}


class TestRepresentationMixupHeadOfSeveralStages(HeadSuite):
    channels = (8, 12, 24)
    cases = {
        "convolution": lambda: RepresentationMixupHead((8, 12, 24), 7, stages=(0, 1, -1)),
        "tokens": lambda: RepresentationMixupHead((8, 12, 24), 7, stages=(0, 1, -1), summary="tokens"),
    }


def slow_pool_1d(flat: list[float], width: int) -> list[float]:
    """Average cell k from floor(k n / w) up to ceil((k + 1) n / w)."""
    count = len(flat)
    spans = [(k * count // width, -(-(k + 1) * count // width)) for k in range(width)]
    return [sum(flat[start:end]) / (end - start) for start, end in spans]


def reference(head: RepresentationMixupHead, early: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 2, 3, 5 and 6, picture by picture."""
    logits, alphas = [], []
    for picture, last in zip(early, final, strict=True):
        z_final = last.flatten(1).mean(1)
        if head.summary == "convolution":
            pooled = picture.flatten(1).mean(1)
            hint = torch.sigmoid(head.summarise[0].weight @ pooled + head.summarise[0].bias)
        else:
            places = [picture[:, row, column] for row in range(picture.shape[1]) for column in range(picture.shape[2])]
            hint = torch.stack(slow_pool_1d(list(torch.cat(places)), len(z_final)))
        alpha = torch.sigmoid(head.scale.weight @ z_final + head.scale.bias)
        mixed = hint * alpha + z_final * (1 - alpha)
        logits.append(head.linear.weight @ mixed + head.linear.bias)
        alphas.append(alpha)
    return torch.stack(logits), torch.stack(alphas)


@pytest.mark.parametrize("summary", ["convolution", "tokens"])
def test_equals_the_papers_equations_and_their_gradients(summary: str) -> None:
    torch.manual_seed(0)
    head = RepresentationMixupHead((6, 10), 4, summary=summary)
    early, final = torch.randn(3, 6, 4, 4, requires_grad=True), torch.randn(3, 10, 2, 2, requires_grad=True)
    inputs = (early, final, *head.parameters())
    ours, (theirs, alphas) = head([early, final]), reference(head, early, final)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head.alpha([early, final]), alphas, atol=1e-6, rtol=1e-5)
    for mine, other in zip(
        torch.autograd.grad(ours.square().sum(), inputs),
        torch.autograd.grad(theirs.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_several_stages_share_what_the_final_one_leaves() -> None:
    torch.manual_seed(0)
    head = RepresentationMixupHead((8, 12, 24), 7, stages=(0, 1, -1))
    maps = [torch.randn(2, 8, 8, 8), torch.randn(2, 12, 4, 4), torch.randn(2, 24, 2, 2)]
    alpha, final = head.alpha(maps), maps[-1].mean((2, 3))
    assert alpha.shape == (2, 2)
    hints = [torch.sigmoid(head.summarise[stage](maps[stage].mean((2, 3)))) for stage in range(2)]
    mixed = alpha[:, :1] * hints[0] + alpha[:, 1:] * hints[1] + (1 - alpha.sum(1, keepdim=True)) * final
    torch.testing.assert_close(head(maps), head.linear(mixed), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("channels", "summary", "expected"),
    [((768, 6144), "convolution", 5_222_481), ((192, 1536), "tokens", 124_497), ((128, 1024), "tokens", 83_025)],
    ids=["ResNet101x3", "Swin-L", "Swin-B"],
)
def test_parameters_are_as_published(channels: tuple[int, int], summary: str, expected: int) -> None:
    with torch.device("meta"):
        head = RepresentationMixupHead(channels, 80, summary=summary)
    assert count_parameters(head) == expected


def test_rejects_stages_without_the_final_one() -> None:
    with pytest.raises(ConfigError, match=r"then -1, the final one, got \[0, 1\]"):
        RepresentationMixupHead((8, 12), 7, stages=(0, 1))


@pytest.mark.parametrize("in_channels", [24, (8, 12, 24)])
def test_rejects_channels_that_do_not_match_the_stages(in_channels: object) -> None:
    with pytest.raises(ConfigError, match=r"a number for each of the stages \[0, -1\]"):
        RepresentationMixupHead(in_channels, 7)


def test_rejects_an_unknown_summary() -> None:
    with pytest.raises(ConfigError, match="did you mean 'tokens'"):
        RepresentationMixupHead((8, 24), 7, summary="token")
