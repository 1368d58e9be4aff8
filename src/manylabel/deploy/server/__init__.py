"""A model over HTTP: an API, and a page to try it on."""

from manylabel.deploy.server.app import create_app
from manylabel.deploy.server.batcher import Batcher
from manylabel.deploy.server.running import run_server
from manylabel.deploy.server.served_model import ServedModel
from manylabel.deploy.server.settings import ServerSettings

__all__ = ["Batcher", "ServedModel", "ServerSettings", "create_app", "run_server"]
