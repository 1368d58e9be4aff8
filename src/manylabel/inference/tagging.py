"""Tagging many pictures: decoding and the model overlap, memory does not grow, nothing stops at a bad picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from manylabel.inference.choosing import TagChoice
from manylabel.inference.decoding import decode_batches
from manylabel.inference.predictor import Predictor, TaggedImage

__all__ = ["tag_pictures"]


def tag_pictures(
    predictor: Predictor,
    names: Iterable[str],
    *,
    choice: TagChoice | None = None,
    batch_size: int = 32,
    num_workers: int = 0,
) -> Iterator[list[TaggedImage]]:
    """Tag pictures, batch by batch, in their order.

    Args:
        predictor: The model.
        names: Paths and addresses; taken as they are needed.
        choice: Which scores become tags; by the model's own thresholds when left out.
        batch_size: Pictures that go through the model at once.
        num_workers: Processes that decode beside the main one; 0 decodes in a thread.

    Yields:
        The tagged pictures of each batch; those that cannot be read say why.

    Examples:
        >>> import tempfile
        >>> from manylabel import Classifier, heads
        >>> from manylabel.builtin import sample_photos
        >>> model = Classifier.create("resnet10t", head=heads.LinearHead, labels=["cat", "dog"], pretrained=False)
        >>> predictor = Predictor.load(model.save(tempfile.mkdtemp()), engine="torch")
        >>> names = [*map(str, sample_photos()), "no_such.jpg"]
        >>> for batch in tag_pictures(predictor, names, choice=TagChoice(top=1), batch_size=3):
        ...     print([picture.error for picture in batch])
        [None, None, None]
        ['there is no such file']
    """
    choice = choice or TagChoice()
    for batch in decode_batches(names, predictor.spec.input_spec, batch_size=batch_size, num_workers=num_workers):
        yield predictor.tag(batch.names, batch.pixels, batch.reasons, choice)
