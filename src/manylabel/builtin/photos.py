"""Sample photos with a free licence, which ``sample_photos/LICENCE.md`` beside them names."""

from pathlib import Path

__all__ = ["sample_photos"]


def sample_photos() -> list[Path]:
    """Return the files of the sample photos: an astronaut, a cat and a cup of coffee.

    Examples:
        >>> [path.name for path in sample_photos()]
        ['astronaut.jpg', 'chelsea.jpg', 'coffee.jpg']
    """
    return sorted((Path(__file__).parent / "sample_photos").glob("*.jpg"))
