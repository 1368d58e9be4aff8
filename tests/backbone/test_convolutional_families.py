import pytest
from torch import Tensor, nn

from conformance.backbone_suite import BackboneSuite, Family

pytestmark = pytest.mark.slow  # every architecture is built and run several times


def norm_after_pooling(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.head.norm(pooled[:, :, None, None]).flatten(1)


def convolution_after_pooling(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.act2(model.norm_head(model.conv_head(pooled[:, :, None, None]))).flatten(1)


class TestConvolutionalFamilies(BackboneSuite):
    families = {
        "resnet": Family("resnet10t"),
        "tresnet": Family("tresnet_m"),
        "resnext": Family("resnext26ts"),
        "resnetv2 (BiT)": Family("resnetv2_50x1_bit"),
        "convnext": Family("convnext_atto", pre_logits=norm_after_pooling),
        "efficientnet": Family("tf_efficientnet_lite0"),
        "regnet": Family("regnetx_002"),
        "mobilenet": Family("mobilenetv3_small_050", pre_logits=convolution_after_pooling),
        "densenet": Family("densenet121"),
    }
