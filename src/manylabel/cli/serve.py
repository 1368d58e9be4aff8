"""`manylabel serve`: an HTTP API and a demo page."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import typer

from manylabel.builtin import DEFAULT_MODEL
from manylabel.cli import options
from manylabel.cli.options import stderr_console
from manylabel.progress import working
from manylabel.system import available_cores, require

__all__ = ["serve"]

_MOST_WORKERS = 8


def serve(
    model: options.AnyModel = DEFAULT_MODEL,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; the default accepts local connections only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="INTEGER", min=1, max=65535, help="Port to listen on.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            envvar="MANYLABEL_API_KEY",
            help="API key that clients must send. Prefer MANYLABEL_API_KEY: arguments are visible in the process list.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Host name to accept in addition to localhost and IP addresses; repeat for more."
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Web origin that may call the API (CORS), such as https://example.org; repeat for more."
        ),
    ] = None,
    max_megabytes: Annotated[
        float, typer.Option(metavar="FLOAT", min=0.001, help="Maximum size of a request in megabytes.")
    ] = 20,
    max_megapixels: Annotated[
        float, typer.Option(metavar="FLOAT", min=0.001, help="Maximum total megapixels of the images in a request.")
    ] = 100,
    timeout: Annotated[float, typer.Option(metavar="FLOAT", min=0.1, help="Seconds before a request times out.")] = 30,
    device: options.Device = None,
) -> None:
    """Serve a model over HTTP: an API and a demo page.

    Ctrl-C or SIGTERM stops the server after it has answered all accepted requests.
    """
    for module in ("fastapi", "prometheus_client", "python_multipart", "uvicorn"):
        require(module, extra="serve")
    from manylabel.server import ServedModel, ServerSettings, create_app, run_server

    is_cpu = device is None or device == "cpu"
    cores = available_cores()
    workers = min(cores, _MOST_WORKERS) if is_cpu else 1
    settings = ServerSettings(
        max_body_bytes=int(max_megabytes * 1_000_000),
        max_pixels=int(max_megapixels * 1_000_000),
        seconds=timeout,
        workers=workers,
        api_key=api_key,
        allow_hosts=(host.lower(), *map(str.lower, allow_host or ())),
        allow_origins=tuple(allow_origin or ()),
    )
    console = stderr_console()
    with working("loading the model"):
        threads = max(1, cores // workers) if is_cpu else None
        served = ServedModel.open(model, device=device, num_threads=threads, notify=console.print)
    if not _is_loopback(host) and api_key is None:
        warning = f"Anyone who can reach {host} may use this server; set MANYLABEL_API_KEY to require a key"
        console.print(warning, style="yellow", markup=False)
    shown = f"[{host}]" if ":" in host else host
    console.print(f"{served.name}: {len(served.spec.labels):,} labels at http://{shown}:{port}", markup=False)
    run_server(create_app(served, settings), host=host, port=port, finish_seconds=int(timeout) + 5)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
