"""A model over HTTP: an API, and a page to try it on."""

from manylabel.server.app import create_app
from manylabel.server.batcher import Batcher
from manylabel.server.running import run_server
from manylabel.server.served_model import ServedModel
from manylabel.server.settings import ServerSettings

__all__ = ["Batcher", "ServedModel", "ServerSettings", "create_app", "run_server"]
