"""Servers of a slow stand-in for a model, in the process and on a port of the loopback."""

import threading
import time
from contextlib import contextmanager

import numpy as np

from colour_model import SPEC
from manylabel.server import ServedModel, ServerSettings, create_app
from manylabel.server.run import make_server


class SlowEngine:
    """The colours' shares, slowly, and not before its gate is open; remembers its batches."""

    spec = SPEC

    def __init__(self, seconds=0.0):
        self.seconds, self.batches, self.gate = seconds, [], threading.Event()
        self.gate.set()

    def scores(self, pixels):
        self.batches.append(len(pixels))
        assert self.gate.wait(60)
        time.sleep(self.seconds)
        return (pixels.mean(axis=(1, 2)) / 255).astype(np.float32)


def slow_app(batch_seconds=0.0, *, limit_seconds=30.0, **settings):
    engine = SlowEngine(batch_seconds)
    limits = ServerSettings(seconds=limit_seconds, **settings)
    return engine, create_app(ServedModel(engine, name="colours"), limits)


@contextmanager
def listening(app, **settings):
    """Serve on a free port; gives the address and the server."""
    server = make_server(app, port=0, **settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for _ in range(1000):
            if server.started:
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()
