import math

import pytest
import torch
from torch import Tensor

from conformance.head_suite import HeadSuite
from manylabel.classifier import Classifier
from manylabel.cost import count_parameters
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.features.cache import pool
from manylabel.heads import CSRA, HEADS, LinearClassifier, MLDecoder, RepresentationMixup
from manylabel.heads.config import describe_head, restore_head
from manylabel.heads.head import pooled_input
from manylabel.recipes import Probe
from manylabel.recipes.setup import resolve

SMALL = {"width": 16, "num_heads": 4, "feedforward": 32}
TOPS = {"csra": {}, "hsq": SMALL, "ml_decoder": SMALL, "q2l": SMALL}


def under(top: str) -> RepresentationMixup:
    return RepresentationMixup((12, 24), 7, top=HEADS[top](24, 7, **TOPS[top]))


class TestRepresentationMixup(HeadSuite):
    channels = (12, 24)
    cases = {
        "convolution": lambda: RepresentationMixup((12, 24), 7),
        "tokens": lambda: RepresentationMixup((12, 24), 7, summary="tokens"),
        "stable": lambda: RepresentationMixup((12, 24), 7, form="stable"),
        "stable under ml_decoder": lambda: RepresentationMixup(
            (12, 24), 7, form="stable", top=MLDecoder(24, 7, **SMALL)
        ),
    }
    tells = {"tokens": ["in_channels=(12, 24)", "stages=(0, -1)", "summary='tokens'"]}


class TestRepresentationMixupOfSeveralStages(HeadSuite):
    channels = (8, 12, 24)
    cases = {
        "convolution": lambda: RepresentationMixup((8, 12, 24), 7, stages=(0, 1, -1)),
        "tokens": lambda: RepresentationMixup((8, 12, 24), 7, stages=(0, 1, -1), summary="tokens"),
    }


class TestUnderAnotherHead(HeadSuite):
    channels = (12, 24)
    cases = {top: lambda top=top: under(top) for top in TOPS}
    tells = {"ml_decoder": ["stages=(0, -1)"]}


def slow_pool_1d(flat: list[float], width: int) -> list[float]:
    """Average cell k from floor(k n / w) up to ceil((k + 1) n / w)."""
    count = len(flat)
    spans = [(k * count // width, -(-(k + 1) * count // width)) for k in range(width)]
    return [sum(flat[start:end]) / (end - start) for start, end in spans]


def reference(head: RepresentationMixup, early: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 2, 3, 5 and 6, image by image."""
    logits, alphas = [], []
    for image, last in zip(early, final, strict=True):
        z_final = last.flatten(1).mean(1)
        if head.summary == "convolution":
            pooled = image.flatten(1).mean(1)
            hint = torch.sigmoid(head.summarise[0].weight @ pooled + head.summarise[0].bias)
        else:
            places = [image[:, row, column] for row in range(image.shape[1]) for column in range(image.shape[2])]
            hint = torch.stack(slow_pool_1d(list(torch.cat(places)), len(z_final)))
        alpha = torch.sigmoid(head.scale.weight @ z_final + head.scale.bias)
        mixed = hint * alpha + z_final * (1 - alpha)
        logits.append(head.top.linear.weight @ mixed + head.top.linear.bias)
        alphas.append(alpha)
    return torch.stack(logits), torch.stack(alphas)


@pytest.mark.parametrize("summary", ["convolution", "tokens"])
def test_equals_the_papers_equations_and_their_gradients(summary: str) -> None:
    torch.manual_seed(0)
    head = RepresentationMixup((6, 10), 4, summary=summary)
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
    head = RepresentationMixup((8, 12, 24), 7, stages=(0, 1, -1))
    maps = [torch.randn(2, 8, 8, 8), torch.randn(2, 12, 4, 4), torch.randn(2, 24, 2, 2)]
    alpha, final = head.alpha(maps), maps[-1].mean((2, 3))
    assert alpha.shape == (2, 2)
    hints = [torch.sigmoid(head.summarise[stage](maps[stage].mean((2, 3)))) for stage in range(2)]
    mixed = alpha[:, :1] * hints[0] + alpha[:, 1:] * hints[1] + (1 - alpha.sum(1, keepdim=True)) * final
    torch.testing.assert_close(head(maps), head.top.linear(mixed), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("channels", "summary", "expected"),
    [((768, 6144), "convolution", 5_222_481), ((192, 1536), "tokens", 124_497), ((128, 1024), "tokens", 83_025)],
    ids=["ResNet101x3", "Swin-L", "Swin-B"],
)
def test_parameters_are_as_published(channels: tuple[int, int], summary: str, expected: int) -> None:
    with torch.device("meta"):
        head = RepresentationMixup(channels, 80, summary=summary)
    assert count_parameters(head) == expected


def test_rejects_stages_without_the_final_one() -> None:
    with pytest.raises(ConfigError, match=r"then -1, the final one, got \[0, 1\]"):
        RepresentationMixup((8, 12), 7, stages=(0, 1))


@pytest.mark.parametrize("in_channels", [24, (8, 12, 24)])
def test_rejects_channels_that_do_not_match_the_stages(in_channels: object) -> None:
    with pytest.raises(ConfigError, match=r"one value for each of the stages \[0, -1\]"):
        RepresentationMixup(in_channels, 7)


def test_rejects_an_unknown_summary() -> None:
    with pytest.raises(ConfigError, match="did you mean 'tokens'"):
        RepresentationMixup((8, 24), 7, summary="token")


def maps() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 12, 8, 8, generator=generator), torch.randn(2, 24, 4, 4, generator=generator)]


def test_the_average_of_the_mixed_map_is_the_papers_mixture() -> None:
    torch.manual_seed(0)
    head, features = RepresentationMixup((12, 24), 7), maps()
    alpha = torch.sigmoid(head.scale(features[1].mean((2, 3))))
    hint = torch.sigmoid(head.summarise[0](features[0].mean((2, 3))))
    expected = alpha * hint + (1 - alpha) * features[1].mean((2, 3))
    torch.testing.assert_close(head.mix(features).mean((2, 3)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("top", TOPS)
def test_every_position_is_mixed_before_the_head_on_top_reads_it(top: str) -> None:
    torch.manual_seed(0)
    head, features = under(top).eval(), maps()
    alpha = torch.sigmoid(head.scale(features[1].mean((2, 3))))
    hint = torch.sigmoid(head.summarise[0](features[0].mean((2, 3))))
    mixed = torch.empty_like(features[1])
    for image in range(2):
        for row in range(4):
            for column in range(4):
                position = features[1][image, :, row, column]
                mixed[image, :, row, column] = alpha[image] * hint[image] + (1 - alpha[image]) * position
    torch.testing.assert_close(head(features), head.top(mixed), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("top", "pooling", "shapes"),
    [
        (None, "average", [(2, 12, 1, 1), (2, 24, 1, 1)]),
        (MLDecoder(24, 7, **SMALL), "earlier", [(2, 12, 1, 1), (2, 24, 4, 4)]),
        (LinearClassifier(24, 7, pooling="max"), "earlier", [(2, 12, 1, 1), (2, 24, 4, 4)]),
    ],
    ids=["linear", "ml_decoder", "maximum"],
)
def test_averages_of_the_earlier_stages_are_enough(
    top: torch.nn.Module | None, pooling: str, shapes: list[tuple[int, ...]]
) -> None:
    head = RepresentationMixup((12, 24), 7, top=top).eval()
    assert pooled_input(head) == pooling
    kept = pool(maps(), pooled_input(head))
    assert [tuple(stage.shape) for stage in kept] == shapes
    torch.testing.assert_close(head(kept), head(maps()), atol=1e-5, rtol=1e-5)


def test_a_probe_gives_the_head_on_top_its_size_and_rate() -> None:
    probe = resolve(Probe(data="scenes:8", head="rm", head_settings={"top": "hsq"}))
    assert probe.head_settings["top"] == {"name": "hsq", "settings": {"width": 256, "feedforward": 512}}
    assert probe.learning_rate == 5e-4


def test_the_head_on_top_may_be_named_in_settings_and_comes_back_from_a_saved_model() -> None:
    top = {"name": "ml_decoder", "settings": SMALL}
    model = Classifier.create(
        "resnet10t", head=RepresentationMixup, labels=["cat", "dog"], head_settings={"top": top}, pretrained=False
    )
    assert (model.head.top.width, model.head.top.in_channels) == (16, 512)
    again = restore_head(describe_head(model.head))
    again.load_state_dict(model.head.state_dict())
    features = [torch.randn(2, channels, 4, 4) for channels in model.backbone.channels]
    assert torch.equal(again.eval()(features), model.head.eval()(features))


def test_rejects_a_head_on_top_that_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="in_channels=24, got 12"):
        RepresentationMixup((12, 24), 7, top=CSRA(12, 7))
    with pytest.raises(ConfigError, match="num_labels=7, got 8"):
        RepresentationMixup((12, 24), 7, top=CSRA(24, 8))
    with pytest.raises(ManyLabelError, match="did you mean 'ml_decoder'"):
        Classifier.create(
            "resnet10t", head=RepresentationMixup, labels=["cat"], head_settings={"top": "mldecoder"}, pretrained=False
        )


def stable(top: torch.nn.Module | None = None) -> RepresentationMixup:
    torch.manual_seed(0)
    return RepresentationMixup((12, 24), 7, form="stable", top=top).eval()


def test_the_stable_form_starts_as_the_head_without_a_mixture_and_never_leaves_the_final_representation() -> None:
    head = stable()
    assert head.alpha(maps()).flatten().tolist() == pytest.approx([0.5 / (1 + math.exp(4))] * 2)
    torch.testing.assert_close(head(maps()), head.top(maps()[1]), atol=0.05, rtol=0.05)
    torch.nn.init.constant_(head.scale.bias, 100.0)
    assert head.alpha(maps()).flatten().tolist() == pytest.approx([0.5] * 2)


def test_a_stable_hint_is_made_of_maxima_and_has_the_scale_of_the_final_representation() -> None:
    head, (early, final) = stable(), maps()
    torch.nn.init.normal_(head.scale.weight)
    mixed = []
    for image in range(2):
        average = final[image].mean((1, 2))
        peaks = early[image].flatten(1).max(1).values
        peaks = (peaks - peaks.mean()) / (peaks.var(unbiased=False) + 1e-5).sqrt()
        hint = head.summarise[0].weight @ peaks + head.summarise[0].bias
        hint = (hint - hint.mean()) / (hint.var(unbiased=False) + 1e-5).sqrt() * average.square().mean().sqrt()
        normal = (average - average.mean()) / (average.var(unbiased=False) + 1e-5).sqrt()
        alpha = 0.5 * torch.sigmoid(head.scale.weight[0] @ normal + head.scale.bias[0])
        mixed.append(alpha * hint + (1 - alpha) * average)
    torch.testing.assert_close(head(maps()), head.top.linear(torch.stack(mixed)), atol=1e-5, rtol=1e-5)


def test_a_head_that_reads_positions_gets_the_maximum_around_each() -> None:
    head, (early, final) = stable(MLDecoder(24, 7, **SMALL)), maps()
    changed = early.clone()
    changed[:, :, 0, 0] += 5  # in the corner of the finer map, which has two by two positions for each of the final one
    difference = (head.mix([changed, final]) - head.mix([early, final])).abs().sum((0, 1))
    assert difference[0, 0] > 0
    assert difference.count_nonzero() == 1


@pytest.mark.parametrize("top", [None, MLDecoder(24, 7, **SMALL)], ids=["linear", "ml_decoder"])
def test_pooled_maxima_are_enough_for_the_stable_form(top: torch.nn.Module | None) -> None:
    head = stable(top)
    kept = pool(maps(), pooled_input(head))
    assert [tuple(stage.shape[2:]) for stage in kept] == ([(1, 1)] * 2 if top is None else [(4, 4)] * 2)
    torch.testing.assert_close(head(kept), head(maps()), atol=1e-5, rtol=1e-5)


def test_the_stable_form_has_no_summary_of_tokens() -> None:
    with pytest.raises(ConfigError, match="own summary, got summary='tokens'; remove it"):
        RepresentationMixup((8, 24), 7, summary="tokens", form="stable")
