"""Heads: feature maps in, logits out; one file per method.

A new head is a file here and its lines below; `manylabel.heads.traits` lists what else it may offer.
"""

from torch import nn

from manylabel.heads.conse import ConSE
from manylabel.heads.csra import CSRA
from manylabel.heads.hsq import HybridSharingQuery
from manylabel.heads.linear import LinearClassifier
from manylabel.heads.ml_decoder import FoldedMLDecoder, MLDecoder
from manylabel.heads.query2label import Query2Label
from manylabel.heads.replacement import replace_head
from manylabel.heads.representation_mixup import RepresentationMixup
from manylabel.heads.text_map import TextMap
from manylabel.heads.token_encoder import TokenEncoder

__all__ = [
    "CSRA",
    "HEADS",
    "ConSE",
    "FoldedMLDecoder",
    "HybridSharingQuery",
    "LinearClassifier",
    "MLDecoder",
    "Query2Label",
    "RepresentationMixup",
    "TextMap",
    "TokenEncoder",
    "replace_head",
]

HEADS: dict[str, type[nn.Module]] = {
    "conse": ConSE,
    "csra": CSRA,
    "hsq": HybridSharingQuery,
    "linear": LinearClassifier,
    "ml_decoder": MLDecoder,
    "q2l": Query2Label,
    "rm": RepresentationMixup,
    "text_map": TextMap,
    "token_encoder": TokenEncoder,
}
"""The heads by the name that the command line and saved models use."""
