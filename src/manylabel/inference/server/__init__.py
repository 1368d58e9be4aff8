"""A model over HTTP: an API, and a page to try it on."""

from manylabel.inference.server.app import create_app
from manylabel.inference.server.batcher import Batcher
from manylabel.inference.server.running import run_server
from manylabel.inference.server.served_model import ServedModel
from manylabel.inference.server.settings import ServerSettings

__all__ = ["Batcher", "ServedModel", "ServerSettings", "create_app", "run_server"]
