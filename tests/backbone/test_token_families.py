import pytest
from torch import Tensor, nn

from conformance.backbone_suite import BackboneSuite, Family

pytestmark = pytest.mark.slow  # every architecture is built and run several times


def norm_after_pooling(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.fc_norm(pooled)


def norm_in_head(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.head.pre_logits(model.head.norm(pooled))


class TestTokenFamilies(BackboneSuite):
    families = {
        "vit": Family("vit_tiny_patch16_224", pre_logits=None),
        "deit, two prefix tokens": Family("deit_tiny_distilled_patch16_224", pre_logits=None),
        "eva": Family("eva02_tiny_patch14_224", size=(56, 84), pre_logits=norm_after_pooling),
        "swin": Family("swin_s3_tiny_224"),
        "maxvit": Family("maxvit_pico_rw_256", size=(64, 64), image_size=64),
        "coatnet": Family("coatnet_pico_rw_224", size=(64, 64), image_size=64),
        "mixer": Family("mixer_s32_224", size=(64, 64), image_size=64),
    }
