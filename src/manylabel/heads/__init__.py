"""Feature maps in, logits out: one head per file."""

from manylabel.heads.ml_decoder import MLDecoder
from manylabel.heads.token_encoder import TokenEncoderHead
from manylabel.heads.transformer_decoder import TransformerDecoderHead

__all__ = ["MLDecoder", "TokenEncoderHead", "TransformerDecoderHead"]
