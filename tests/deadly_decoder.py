"""A decoder that ends its process on one image, as one with a bug or the system's killer would."""

import os

import numpy as np

from manylabel.engine import PreparedBatch


def decode_batch(images, spec):
    names = tuple(name for name, _ in images)
    if any("deadly" in name for name in names):
        os._exit(9)
    os.write(1, b"noise of a library")
    return PreparedBatch(names, np.zeros((len(names), *spec.size, 3), np.uint8), (None,) * len(names))
