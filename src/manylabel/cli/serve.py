"""`manylabel serve`: an HTTP API and a web page."""

import ipaddress
import os
from typing import Annotated

from manylabel.builtin import DEFAULT_MODEL
from manylabel.cli import options
from manylabel.cli.options import option, stderr_console
from manylabel.inference.engine import engine_device
from manylabel.page import plural
from manylabel.progress import working
from manylabel.system import available_cores, require

_MOST_WORKERS = 8


def serve(
    model: options.AnyModel = DEFAULT_MODEL,
    host: Annotated[str, option("ADDRESS", "Address to listen on; the default is local only.")] = "127.0.0.1",
    port: Annotated[int, option("INTEGER", "Port to listen on.", min=1, max=65535)] = 8000,
    api_key: Annotated[
        str | None,
        option(
            "KEY",
            "API key that clients must send. Prefer MANYLABEL_API_KEY: arguments are visible in the process list.",
            envvar="MANYLABEL_API_KEY",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option("NAME", "Host name to accept in addition to localhost and IP addresses; repeat for more."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        option("URL", "Web origin that may call the API (CORS), such as https://example.org; repeat for more."),
    ] = None,
    label_studio: Annotated[
        list[str] | None,
        option(
            "URL",
            "Pre-annotate for Label Studio at this address (key: LABEL_STUDIO_API_KEY); repeat for other image hosts.",
        ),
    ] = None,
    max_megabytes: Annotated[float, option("FLOAT", "Maximum size of a request in megabytes.", min=0.001)] = 20,
    max_megapixels: Annotated[float, option("FLOAT", "Maximum total megapixels of a request.", min=0.001)] = 100,
    timeout: Annotated[float, option("FLOAT", "Seconds before a request times out.", min=0.1)] = 30,
    device: options.Device = "auto",
) -> None:
    """Serve a model over HTTP: an API and a web page.

    Ctrl-C or SIGTERM stops the server after it has answered all accepted requests.
    """
    for module in ("fastapi", "prometheus_client", "python_multipart", "uvicorn"):
        require(module, extra="serve")
    from manylabel.server import ServedModel, ServerSettings, create_app, run_server

    device, cores = engine_device(model, device), available_cores()
    workers = min(cores, _MOST_WORKERS) if device == "cpu" else 1
    settings = ServerSettings(
        max_body_bytes=int(max_megabytes * 1_000_000),
        max_pixels=int(max_megapixels * 1_000_000),
        seconds=timeout,
        workers=workers,
        api_key=api_key,
        allow_hosts=(host.lower(), *map(str.lower, allow_host or ())),
        allow_origins=tuple(allow_origin or ()),
        label_studio=tuple(address.rstrip("/") for address in label_studio or ()),
        label_studio_key=os.environ.get("LABEL_STUDIO_API_KEY"),
    )
    console = stderr_console()
    with working("loading the model"):
        threads = max(1, cores // workers) if device == "cpu" else None
        served = ServedModel.open(model, device=device, num_threads=threads, notify=console.print)
    if api_key is None and not _is_loopback(host):
        warning = f"Anyone who can reach {host} may use this server; set MANYLABEL_API_KEY to require a key"
        console.print(warning, style="yellow", markup=False)
    shown = f"[{host}]" if ":" in host else host
    console.print(f"{served.name}: {plural(len(served.spec.labels), 'label')} at http://{shown}:{port}", markup=False)
    run_server(create_app(served, settings), host=host, port=port, finish_seconds=int(timeout) + 5)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
