"""What a server allows: sizes, times, keys and origins."""

from dataclasses import dataclass

from manylabel.errors import ConfigError

__all__ = ["ServerSettings"]

MOST_PIXELS = 50_000_000  # of an image that is decoded, by default


@dataclass(frozen=True)
class ServerSettings:
    """The limits of a server.

    Args:
        max_body_bytes: A request with a larger body is refused, before it is read.
        max_held_bytes: Bodies of all requests together; more wait for nobody, they are told to come again.
        max_pixels: A picture with more is refused, before it is decoded.
        max_waiting: Pictures that are accepted and not answered yet; more are told to come again.
        seconds: How long a body may take to arrive, and how long its answer.
        batch_size: Pictures that go through the model at once.
        workers: Batches that are computed at the same time.
        api_key: What callers must show; nothing when left out.
        allow_origins: Web pages elsewhere that may call, such as ``https://example.org``; none by default.

    Raises:
        ConfigError: A limit is not above 0, or the key cannot stand in a header.

    Examples:
        >>> ServerSettings(max_body_bytes=1_000_000).seconds
        30.0
    """

    max_body_bytes: int = 20_000_000
    max_held_bytes: int = 200_000_000
    max_pixels: int = MOST_PIXELS
    max_waiting: int = 256
    seconds: float = 30.0
    batch_size: int = 16
    workers: int = 1
    api_key: str | None = None
    allow_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "max_body_bytes",
            "max_held_bytes",
            "max_pixels",
            "max_waiting",
            "seconds",
            "batch_size",
            "workers",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        key = self.api_key
        if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
            raise ConfigError("the API key must be letters, digits and signs without spaces; leave it out to need none")
