"""Data specs: one line of text, such as ``voc:PATH,split=train``, that names a data set everywhere."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from manylabel.data.dataset import PictureDataset
from manylabel.errors import SpecError, list_choices

__all__ = ["FORMATS", "load", "reduce"]

Reader = Callable[..., PictureDataset]

FORMATS: dict[str, Reader] = {}
