import pytest
import torch

from conformance.head_suite import HeadSuite
from manylabel.errors import ConfigError
from manylabel.features import pool
from manylabel.heads import RepresentationMixup, RepresentationMixup
from manylabel.heads.mixed_features import TOPS
from manylabel.recipes import LinearProbe
from manylabel.recipes.loading import pooling_for

SMALL = {"width": 16, "num_heads": 4, "feedforward": 32}
SETTINGS = {"hsq": SMALL, "ml_decoder": SMALL, "q2l": SMALL, "csra": {}}


def make(top: str) -> RepresentationMixup:
    return RepresentationMixup((12, 24), 7, top=top, top_settings=SETTINGS[top])


class TestMixedFeaturesHead(HeadSuite):
    channels = (12, 24)
    cases = {top: lambda top=top: make(top) for top in TOPS}
    tells = {"ml_decoder": ["top='ml_decoder'", "stages=(0, -1)"]}


def maps() -> list[torch.Tensor]:
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
def test_every_place_is_mixed_before_the_head_reads_it(top: str) -> None:
    torch.manual_seed(0)
    head, features = make(top).eval(), maps()
    alpha = torch.sigmoid(head.scale(features[1].mean((2, 3))))
    hint = torch.sigmoid(head.summarise[0](features[0].mean((2, 3))))
    mixed = torch.empty_like(features[1])
    for picture in range(2):
        for row in range(4):
            for column in range(4):
                place = features[1][picture, :, row, column]
                mixed[picture, :, row, column] = alpha[picture] * hint[picture] + (1 - alpha[picture]) * place
    torch.testing.assert_close(head(features), head.reader([mixed]), atol=1e-5, rtol=1e-5)


def test_averages_of_the_earlier_stages_are_enough() -> None:
    torch.manual_seed(0)
    head = make("ml_decoder").eval()
    assert pooling_for(head) == "earlier"
    kept = pool(maps(), pooling_for(head))
    assert [tuple(stage.shape) for stage in kept] == [(2, 12, 1, 1), (2, 24, 4, 4)]
    torch.testing.assert_close(head(kept), head(maps()), atol=1e-5, rtol=1e-5)


def test_a_probe_gives_the_head_on_top_its_size_and_rate() -> None:
    probe = LinearProbe(data="scenes:8", head="mixed_features", head_settings={"top": "hsq"})
    assert probe.head_settings["top_settings"] == {"width": 256, "feedforward": 512}
    assert probe.learning_rate == LinearProbe(data="scenes:8", head="hsq").learning_rate


def test_rejects_a_head_that_it_cannot_feed() -> None:
    with pytest.raises(ConfigError, match="no top 'linear'"):
        RepresentationMixup((12, 24), 7, top="linear")


def test_rejects_settings_of_another_head() -> None:
    with pytest.raises(ConfigError, match="top_settings do not fit ml_decoder"):
        RepresentationMixup((12, 24), 7, top="ml_decoder", top_settings={"experts": 3})
