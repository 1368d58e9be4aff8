"""Open Images: millions of image-level labels, most of them unknown."""

from manylabel.data.open_images.reader import open_images

__all__ = ["open_images"]
