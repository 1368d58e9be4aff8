"""The heads by name, as the command line and saved models say it."""

from torch import nn

from manylabel.heads.convex_combination import ConvexCombinationHead
from manylabel.heads.hybrid_sharing import HybridSharingHead
from manylabel.heads.linear import LinearHead
from manylabel.heads.mixed_features import MixedFeaturesHead
from manylabel.heads.ml_decoder import MLDecoder
from manylabel.heads.representation_mixup import RepresentationMixupHead
from manylabel.heads.residual_attention import ResidualAttentionHead
from manylabel.heads.text_map import TextMapHead
from manylabel.heads.token_encoder import TokenEncoderHead
from manylabel.heads.transformer_decoder import TransformerDecoderHead

__all__ = ["HEADS"]

HEADS: dict[str, type[nn.Module]] = {
    "conse": ConvexCombinationHead,
    "hybrid_sharing": HybridSharingHead,
    "linear": LinearHead,
    "mixed_features": MixedFeaturesHead,
    "ml_decoder": MLDecoder,
    "representation_mixup": RepresentationMixupHead,
    "residual_attention": ResidualAttentionHead,
    "text_map": TextMapHead,
    "token_encoder": TokenEncoderHead,
    "transformer_decoder": TransformerDecoderHead,
}
