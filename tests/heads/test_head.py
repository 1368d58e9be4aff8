"""Heads are known by their traits: nowhere else in the package by their classes."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import manylabel
from manylabel.heads import CSRA, HEADS, HybridSharingQuery, LinearClassifier, MLDecoder, RepresentationMixup
from manylabel.heads.head import (
    ProbeDefaults,
    as_expert_head,
    as_mixup_head,
    attention_of,
    label_weights,
    pooled_input,
    probe_defaults,
)


class Plain(nn.Module):
    """A user's head with no trait at all."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.mean((2, 3))


def test_no_class_of_a_head_is_asked_for_outside_of_the_heads() -> None:
    classes = "|".join(kind.__name__ for kind in HEADS.values())
    asking = re.compile(rf"isinstance\([^)]*head[^)]*\b({classes})\b|type\([^)]*\) (is|==) ({classes})\b")
    paths = [path for path in Path(manylabel.__file__).parent.rglob("*.py") if path.parent.name != "heads"]
    assert not [str(path) for path in paths if asking.search(path.read_text())]


def test_a_head_without_traits_is_a_head() -> None:
    head = Plain()
    assert pooled_input(head) == "none"
    assert probe_defaults(Plain) == ProbeDefaults()
    for trait in (attention_of, label_weights, as_expert_head, as_mixup_head):
        assert trait(head) is None


@pytest.mark.parametrize("top", [LinearClassifier(8, 3), CSRA(8, 3), MLDecoder(8, 3, width=16)])
def test_representation_mixup_has_the_traits_of_the_head_on_top(top: nn.Module) -> None:
    head = RepresentationMixup((4, 8), 3, top=top)
    assert (attention_of(head) is None) == (attention_of(top) is None)
    assert (label_weights(head) is None) == (label_weights(top) is None)
    assert as_mixup_head(head) is head


def test_only_mixed_experts_are_experts() -> None:
    assert as_expert_head(HybridSharingQuery(8, 3, width=8)) is not None
    assert as_expert_head(HybridSharingQuery(8, 3, width=8, layers="linear")) is None


@pytest.mark.parametrize("pooling", ["average", "max", "generalised_mean"])
def test_pooled_maps_give_a_linear_head_the_same_logits(pooling: str) -> None:
    head, feature = LinearClassifier(8, 3, pooling=pooling), torch.rand(2, 8, 3, 3)
    kept = {"average": feature.mean((2, 3), keepdim=True), "max": feature.amax((2, 3), keepdim=True), "none": feature}
    torch.testing.assert_close(head(kept[pooled_input(head)]), head(feature))


def test_every_head_can_be_built_with_its_own_defaults_on_frozen_features() -> None:
    for name, kind in HEADS.items():
        settings = dict(probe_defaults(kind).settings)
        given = {"text_vectors": torch.eye(3)} if name in ("conse", "text_map") else {}
        channels = (4, 8) if name == "rm" else 8
        assert kind(channels, 3, **settings, **given).num_labels == 3


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
