"""What an exported file says of itself: labels, how pictures are prepared, and thresholds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from manylabel.errors import LabelError, ModelFormatError
from manylabel.types import InputSpec, LabelSpace

__all__ = ["METADATA_KEY", "InferenceSpec"]

METADATA_KEY = "manylabel"
VERSION = 1


@dataclass(frozen=True)
class InferenceSpec:
    """All that is needed to go from a picture to tags, but for the weights.

    Args:
        labels: The labels, in the order of the scores.
        input_spec: How pictures are resized. Normalising is part of the exported model, which takes plain bytes.
        thresholds: From which score on a label counts as present, one per label; 0.5 for all when there are none.
        single_label: Whether every picture has exactly one label.

    Examples:
        >>> spec = InferenceSpec(LabelSpace(["cat", "dog"]), InputSpec(size=(64, 64)), thresholds=(0.4, 0.6))
        >>> InferenceSpec.from_json(spec.to_json(), source="a.onnx") == spec
        True
    """

    labels: LabelSpace
    input_spec: InputSpec
    thresholds: tuple[float, ...] | None = None
    single_label: bool = False

    def to_json(self) -> str:
        """Return it as JSON, for the metadata of a file."""
        values = {
            "version": VERSION,
            "labels": self.labels.to_dict(),
            "input": asdict(self.input_spec) | {"images": "uint8 RGB, [batch, height, width, 3]"},
            "thresholds": self.thresholds,
            "single_label": self.single_label,
        }
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, *, source: str) -> InferenceSpec:
        """Read what `to_json` wrote.

        Args:
            text: The JSON.
            source: The file, for errors.

        Raises:
            ModelFormatError: It is damaged, or from another version.
        """
        try:
            values = json.loads(text)
            found = values["version"]
            if found != VERSION:
                raise ModelFormatError(f"{source} has format {found}, this version reads {VERSION}; export it again")
            numbers: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in values["input"].items()
            }
            del numbers["images"]
            thresholds = values["thresholds"]
            return cls(
                LabelSpace.from_dict(values["labels"]),
                InputSpec(**numbers),
                thresholds=None if thresholds is None else tuple(thresholds),
                single_label=values["single_label"],
            )
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError, LabelError) as error:
            raise ModelFormatError(f"what {source} says of itself is damaged ({error!r}); export it again") from error
