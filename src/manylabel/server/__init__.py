"""HTTP server for a model: an API, and a web page to try it."""

from manylabel.server.app import create_app
from manylabel.server.limits import ServerSettings
from manylabel.server.model import ServedModel
from manylabel.server.run import run_server

__all__ = ["ServedModel", "ServerSettings", "create_app", "run_server"]
