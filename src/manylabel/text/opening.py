"""Text encoders by name, as settings and saved models say it."""

from functools import lru_cache
from pathlib import Path

from manylabel.errors import ConfigError, list_choices
from manylabel.text.encoder import TextEncoder
from manylabel.text.sentences import OFFLINE_ENCODERS, SentenceEncoder
from manylabel.text.stored_vectors import StoredVectors
from manylabel.text.word_vectors import WordVectors

__all__ = ["DEFAULT_ENCODER", "open_encoder"]

DEFAULT_ENCODER = "offline:minilm"
KINDS = ("glove", "npz", "sentence", "word2vec")


@lru_cache(maxsize=2)  # a sentence model takes seconds to load and tens of megabytes
def open_encoder(name: str = DEFAULT_ENCODER) -> TextEncoder:
    """Open the text encoder that a name stands for; the last two stay open.

    Args:
        name: ``offline:minilm`` (from a package, no hub), ``sentence:MODEL`` (any model of sentence-transformers, by
            its name on the hub or a folder), ``glove:FILE`` or ``word2vec:FILE`` (word vectors, text or binary), or
            ``npz:FILE`` (arrays ``labels`` and ``vectors``).

    Returns:
        The encoder.

    Raises:
        ConfigError: There is no such encoder.
        MissingExtraError: It needs the extra ``text``, which is not installed.

    Examples:
        >>> open_encoder("golve:vectors.txt")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: no text encoder 'golve:vectors.txt'; did you mean 'glove'? There is: ...
    """
    kind, colon, source = name.partition(":")
    if name in OFFLINE_ENCODERS or (kind == "sentence" and source):
        return SentenceEncoder(name)
    if kind in ("glove", "word2vec") and source:
        return WordVectors.read(Path(source).expanduser(), name=name)
    if kind == "npz" and source:
        return StoredVectors.read(Path(source).expanduser())
    given = name if kind == "offline" or not colon else kind
    choices = [*OFFLINE_ENCODERS, *(f"{known}:..." for known in KINDS)] if given == name else KINDS
    raise ConfigError(f"no text encoder {name!r}; {list_choices(given, choices)}")
