"""The page at ``/``: three files beside this one, which ask for nothing from anywhere else."""

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response

__all__ = ["add_page"]

_FOLDER = Path(__file__).parent / "static"
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    """Add the page to an app.

    Args:
        app: The app.

    Examples:
        >>> from fastapi.testclient import TestClient
        >>> app = FastAPI()
        >>> add_page(app)
        >>> TestClient(app).get("/page.css").headers["content-type"]
        'text/css; charset=utf-8'
    """
    for path, (name, kind) in _FILES.items():
        app.get(path, include_in_schema=False)(_File((_FOLDER / name).read_bytes(), kind).answer)


class _File:
    """A file that is sent as it is."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.content = content
        self.kind = kind

    async def answer(self) -> Response:
        """Return the file."""
        return Response(self.content, media_type=self.kind, headers=_HEADERS)
