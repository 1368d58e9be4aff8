"""A model by its name and settings, as it travels to other processes and machines, which open it there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from manylabel.errors import ConfigError
from manylabel.inference.engine import EngineName
from manylabel.inference.predictor import Predictor
from manylabel.predictions import InferenceSpec

__all__ = ["PlacedModel"]


@dataclass(frozen=True)
class PlacedModel:
    """A model to be opened elsewhere, once for each replica.

    Args:
        model: As `open_engine` takes it; a path is made absolute, and must be there on every machine.
        engine: What to run it with.
        labels: Other labels than its own.
        device: Where torch runs it.

    Examples:
        >>> PlacedModel("builtin:coco80", device="cuda").num_gpus
        1
    """

    model: str | Path
    engine: EngineName = "auto"
    labels: Sequence[str] | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if Path(self.model).exists():  # other processes may run in another folder
            object.__setattr__(self, "model", str(Path(self.model).resolve()))

    @property
    def num_gpus(self) -> int:
        """GPUs that Ray sets aside for a replica."""
        return int(self.device is not None and self.device.startswith("cuda"))

    def fit(self, replicas: int | None, resources: Mapping[str, float] | None = None) -> int:
        """Return how many replicas to start: so many, or as many as there is room for.

        Args:
            replicas: How many are wanted, if that was said.
            resources: What there is, by Ray's names; left out where machines may be added on demand.

        Raises:
            ConfigError: There are too few or too many.

        Examples:
            >>> PlacedModel("builtin:coco80").fit(None, {"CPU": 4.0})
            4
            >>> PlacedModel("builtin:coco80").fit(8, {"CPU": 4.0})
            Traceback (most recent call last):
            manylabel.errors.ConfigError: replicas must be at most 4, one for each CPU, got 8
        """
        if replicas is not None and replicas < 1:
            raise ConfigError(f"replicas must be at least 1, got {replicas}")
        kind = "GPU" if self.num_gpus else "CPU"
        room = None if resources is None else int(resources.get(kind, 0))
        if replicas is not None and room is not None and replicas > room:
            raise ConfigError(f"replicas must be at most {room}, one for each {kind}, got {replicas}")
        return replicas or room or 1

    def check(self) -> InferenceSpec:
        """Open the model here: mistakes are found before anything starts, and it is exported once for this machine."""
        engine = "torch" if self.num_gpus else self.engine  # here there may be no GPU
        return Predictor.load(self.model, engine=engine, labels=self.labels).spec

    def open(self) -> Predictor:
        """Open the model where it is used; on a CPU with one thread, as there is a replica for each core."""
        return Predictor.load(self.model, engine=self.engine, labels=self.labels, device=self.device, num_threads=1)
