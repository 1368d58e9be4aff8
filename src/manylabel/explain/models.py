"""The same picture under several models: the teachers and the student of CPSD (its Figure 4), or any others."""

from collections.abc import Mapping, Sequence
from typing import Literal

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError
from manylabel.explain.explain import explain
from manylabel.explain.explanation import Explanation
from manylabel.images import ImageLike
from manylabel.types import LabelSpace

__all__ = ["explain_models"]


def explain_models(
    models: Mapping[str, Classifier | Sequence[Classifier]],
    picture: ImageLike,
    *,
    labels: str | Sequence[str] | None = None,
    method: str | Sequence[str] = "auto",
    blocks: Sequence[int] | Literal["all"] = (-1,),
) -> list[Explanation]:
    """Explain a picture with several models, label by label.

    A teacher of CPSD knows only the labels of its subset; a model is left out of the rows of labels it lacks.

    Args:
        models: Classifiers by name, in the order of the columns. Where a name has several, as one side of CPSD has
            teachers, each label is explained by those that know it.
        picture: What `explain` takes.
        labels: As for `explain`; those that the last model predicts when left out.
        method: As for `explain`.
        blocks: As for `explain`; all are those of each model.

    Returns:
        Explanations, all models of a label beside each other; `draw_grid` shows them.

    Raises:
        ConfigError: There is no model.
        LabelError: No model knows a label.

    Examples:
        >>> from PIL import Image
        >>> from manylabel import heads
        >>> pets, all_animals = (
        ...     Classifier.create("resnet10t", head=heads.CSRA, labels=labels, pretrained=False, image_size=64)
        ...     for labels in (["cat", "dog"], ["cat", "dog", "cow"])
        ... )
        >>> models = {"co teachers": [pets], "student": all_animals}
        >>> found = explain_models(models, Image.new("RGB", (64, 64)), labels=["cow", "cat"])
        >>> [(each.label, each.model) for each in found]
        [('cow', 'student'), ('cat', 'co teachers'), ('cat', 'student')]
    """
    if not any(isinstance(given, Classifier) or given for given in models.values()):
        raise ConfigError("name at least one model to explain with")
    columns = [
        (name, model)
        for name, given in models.items()
        for model in ([given] if isinstance(given, Classifier) else given)
    ]
    named = [labels] if isinstance(labels, str) else labels
    if named is None:
        named = list(dict.fromkeys(each.label for each in explain(columns[-1][1], picture)))
    known_by_any = LabelSpace(list(dict.fromkeys(label for _, model in columns for label in model.labels)))
    for label in named:
        known_by_any.index(label)  # raises where no model knows it, with the nearest names
    found: dict[str, list[Explanation]] = {label: [] for label in named}
    for name, model in columns:
        known = [label for label in named if label in model.labels]
        if known:
            for each in explain(model, picture, labels=known, method=method, blocks=blocks, name=name):
                found[each.label].append(each)
    return [each for rows in found.values() for each in rows]
