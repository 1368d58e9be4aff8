"""ONNX files: export any torch module, and open files in onnxruntime without torch."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from manylabel.errors import ConfigError
from manylabel.storage import replacing
from manylabel.system import available_cores, require

if TYPE_CHECKING:  # opening a file must not import torch
    from torch import Tensor, nn

MAX_BYTES = 1.9e9  # ONNX files are limited to 2 GB
WEIGHTS_KEY = "onnx"  # in the metadata of a safetensors file: the names of its tensors in the graph beside it
TRANSPOSED = ".T"  # after the name of a tensor whose transpose the graph uses


def open_session(path: str | Path, *, num_threads: int | None = None) -> Any:  # noqa: ANN401 - onnxruntime has no types
    """Open an ONNX file on the CPU.

    Args:
        path: The file.
        num_threads: Threads of one session (default: one per core).

    Returns:
        An ``onnxruntime.InferenceSession``.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    onnxruntime = require("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cores() if num_threads is None else num_threads
    options.inter_op_num_threads = 1  # the layers of a model are sequential
    options.log_severity_level = 3  # errors only
    # waiting threads must not spin on cores that decode images
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in _weights_of(Path(path)).items()}
    if values:
        options.add_external_initializers(list(values), list(values.values()))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _weights_of(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the weights of a graph that are stored in a safetensors file of the same name, by their names in it."""
    file = path.with_suffix(".safetensors")
    if not file.is_file():
        return {}
    with safe_open(file, "np") as stored:
        names: dict[str, str] = json.loads((stored.metadata() or {}).get(WEIGHTS_KEY, "{}"))
        return {
            name: np.ascontiguousarray(
                stored.get_tensor(key.removesuffix(TRANSPOSED)).T
                if key.endswith(TRANSPOSED)
                else stored.get_tensor(key),
                dtype=np.float32,
            )
            for name, key in names.items()
        }


def write_onnx(
    module: "nn.Module",
    images: "Tensor",
    path: str | Path,
    *,
    name: str,
    outputs: Sequence[str] | None = None,
    dynamic_axes: Sequence[int] = (0,),
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Export a module to an ONNX file, replacing an existing one.

    Args:
        module: Module to export, in eval mode, on the CPU; its one input is called ``images``.
        images: Example input of two images, because exporters treat a batch size of one as constant.
        path: Output file.
        name: Name of the module in errors.
        outputs: Names of the outputs.
        dynamic_axes: Input axes of dynamic length.
        metadata: Metadata of the file.

    Raises:
        MissingExtraError: onnxscript is not installed.
        ConfigError: The module cannot be exported.

    Examples:
        >>> import tempfile
        >>> import torch
        >>> file = Path(tempfile.mkdtemp()) / "flat.onnx"
        >>> write_onnx(torch.nn.Flatten(), torch.zeros(2, 3, 4), file, name="flat", outputs=["flat"])
        >>> open_session(file).run(None, {"images": torch.zeros(5, 3, 4).numpy()})[0].shape
        (5, 12)
    """
    import torch

    require("onnxscript", extra="train")
    num_bytes = sum(weight.numel() * 4 for weight in module.state_dict().values())
    if num_bytes > MAX_BYTES:
        raise ConfigError(f"{name} has {num_bytes / 1e9:.1f} GB of weights, more than one ONNX file can hold")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # internal to the exporter
            program = torch.onnx.export(
                module,
                (images,),
                input_names=["images"],
                output_names=outputs,
                dynamic_shapes=(dict.fromkeys(dynamic_axes, torch.export.Dim.DYNAMIC),),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:
        raise ConfigError(f"{name} cannot be exported to ONNX: {type(error).__name__}: {error}") from error
    if program is None:  # only if torch writes the file itself
        raise ConfigError(f"{name} cannot be exported to ONNX: torch returned nothing")
    program.model.metadata_props.update(metadata or {})
    with replacing(path, overwrite=True) as temporary:
        program.save(temporary, external_data=False)
