"""Feature maps in, logits out: one head per file."""

from manylabel.heads.convex_combination import ConvexCombinationHead
from manylabel.heads.hybrid_sharing import HybridSharingHead
from manylabel.heads.linear import LinearHead
from manylabel.heads.mixed_features import MixedFeaturesHead
from manylabel.heads.mixing import Mixing
from manylabel.heads.ml_decoder import MLDecoder
from manylabel.heads.names import HEADS
from manylabel.heads.open_vocabulary import OpenVocabularyHead, as_open_vocabulary
from manylabel.heads.representation_mixup import RepresentationMixupHead
from manylabel.heads.residual_attention import ResidualAttentionHead
from manylabel.heads.text_map import TextMapHead
from manylabel.heads.token_encoder import TokenEncoderHead
from manylabel.heads.transformer_decoder import TransformerDecoderHead

__all__ = [
    "HEADS",
    "ConvexCombinationHead",
    "HybridSharingHead",
    "LinearHead",
    "MLDecoder",
    "MixedFeaturesHead",
    "Mixing",
    "OpenVocabularyHead",
    "RepresentationMixupHead",
    "ResidualAttentionHead",
    "TextMapHead",
    "TokenEncoderHead",
    "TransformerDecoderHead",
    "as_open_vocabulary",
]
