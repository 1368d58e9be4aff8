"""`manylabel serve`: a model over HTTP, and a page to try it on."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import typer
from rich.console import Console

from manylabel.system import available_cores, require

__all__ = ["serve"]

_MOST_WORKERS = 8


def serve(
    model: Annotated[
        str, typer.Option(help="A model's folder, an exported .onnx file, a name on the hub, or builtin:NAME.")
    ] = "builtin:coco80",
    host: Annotated[str, typer.Option(help="Where to listen; only this machine reaches the default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="MANYLABEL_API_KEY",
            help="Callers must show it; others see it in a list of processes, so set the variable.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A web page elsewhere that may call; again for more.")
    ] = None,
    max_megabytes: Annotated[float, typer.Option(min=0.001, help="Megabytes of a request.")] = 20,
    max_megapixels: Annotated[float, typer.Option(min=0.001, help="Million pixels of a picture.")] = 50,
    max_waiting: Annotated[int, typer.Option(min=1, help="Pictures that wait; more are told to come again.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long an answer may take.")] = 30,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures that go through the model at once.")] = 16,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Batches computed at the same time; one for each core when left out."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where torch runs the model, such as cuda.")] = None,
    engine: Annotated[Literal["auto", "onnx", "torch"], typer.Option(help="What runs the model.")] = "auto",
) -> None:
    """Serve a model: an API for programs and a page for people.

    It stops at Ctrl-C or SIGTERM, after it has answered what it accepted.
    """
    for module in ("fastapi", "prometheus_client", "python_multipart", "uvicorn"):
        require(module, extra="serve")
    from manylabel.server import ServedModel, ServerSettings, create_app, run_server

    is_cpu = device is None or device == "cpu"
    cores = available_cores()
    at_once = workers or (min(cores, _MOST_WORKERS) if is_cpu else 1)
    settings = ServerSettings(
        max_body_bytes=int(max_megabytes * 1_000_000),
        max_held_bytes=int(max(10 * max_megabytes, 200) * 1_000_000),
        max_pixels=int(max_megapixels * 1_000_000),
        max_waiting=max_waiting,
        seconds=seconds,
        batch_size=batch_size,
        workers=at_once,
        api_key=api_key,
        allow_origins=tuple(allow_origin or ()),
    )
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with console.status("Opening the model; the first time it is made ready for this machine ..."):
        served = ServedModel.open(
            model,
            engine=engine,
            device=device,
            num_threads=max(1, cores // at_once) if is_cpu else None,
            max_pixels=settings.max_pixels,
        )
    if not _is_loopback(host) and api_key is None:
        console.print(
            f"Anybody who reaches {host} may ask; --api-key or MANYLABEL_API_KEY asks for a key",
            style="yellow",
            markup=False,
        )
    shown = f"[{host}]" if ":" in host else host
    console.print(f"{served.name}: {len(served.predictor.labels):,} labels at http://{shown}:{port}", markup=False)
    run_server(create_app(served, settings), host=host, port=port, finish_seconds=int(seconds) + 5)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
