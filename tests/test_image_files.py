import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from manylabel.errors import ConfigError, DataError, ImageError
from manylabel.image_files import fetch, image_names, list_images


@pytest.fixture
def folder(tmp_path):
    for name in ("b.jpg", "a.PNG", "notes.txt", ".hidden.jpg", "inner/c.webp", ".cache/d.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


def relative(folder, names):
    return [name.removeprefix(f"{folder}/") for name in names]


def test_a_folder_gives_all_below_it_in_order_of_names(folder):
    assert relative(folder, list_images([str(folder)])) == ["a.PNG", "b.jpg", "inner/c.webp"]


def test_patterns_and_files_are_taken_as_they_come(folder):
    given = [f"{folder}/**/*.*p*g*", f"{folder}/notes.txt", "gone.jpg"]
    found = relative(folder, list_images(given))
    assert found[-2:] == ["notes.txt", "gone.jpg"]
    assert set(found[:-2]) == {"b.jpg"} | ({"a.PNG"} & set(found))


def test_nothing_is_listed_before_it_is_asked_for(folder):
    def endless():
        while True:
            yield "a.jpg\n"

    names = list_images(["-"], listed=endless())
    assert [next(names) for _ in range(3)] == ["a.jpg"] * 3


def test_a_name_with_spaces_at_its_ends_stays_whole():
    assert list(list_images(["-"], listed=[" a.jpg \r\n", "\n"])) == [" a.jpg "]


def test_addresses_are_fetched_only_when_allowed():
    address = "https://example.org/a.jpg"
    assert list(list_images([address, "-"], listed=[address], allow_urls=True)) == [address, address]
    for paths in ([address], ["-"]):
        with pytest.raises(ConfigError, match="--allow-urls"):
            list(list_images(paths, listed=[address]))


def test_an_empty_folder_and_a_pattern_without_matches_are_errors(folder):
    with pytest.raises(DataError, match=r"no images in .*: the folder is empty"):
        list(list_images([f"{folder}/empty"]))
    with pytest.raises(DataError, match=r"no images in .*\.jpg.*; check the pattern"):
        list(list_images([f"{folder}/*.gif"]))


def test_a_pattern_lists_images_in_order(tmp_path):
    names = [str(tmp_path / f"{number:02}.jpg") for number in range(40)]
    for name in reversed(names):
        Path(name).touch()
    assert list(list_images([str(tmp_path / "*.jpg")])) == names


def test_every_folder_is_walked_once_whatever_links_lead_to_it(folder, caplog):
    (folder / "self").symlink_to(".")
    (folder / "inner" / "up").symlink_to("..")
    (folder / "zz").symlink_to("inner")
    assert list(image_names(folder)) == ["a.PNG", "b.jpg", "inner/c.webp"]
    assert caplog.text.count("skipping ") == 3
    assert len(list(list_images([str(folder)], quiet=True))) == 3
    assert caplog.text.count("skipping ") == 3  # who only counts does not warn again


def test_a_link_that_loops_costs_nothing_but_itself(folder, caplog):
    (folder / "loop").symlink_to("loop")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "gone").symlink_to("nowhere")
    assert list(image_names(folder)) == ["a.PNG", "b.jpg", "inner/c.webp", "loop.jpg"]  # opening says what is wrong
    assert f"skipping {folder / 'loop'}: " in caplog.text


def test_links_to_other_folders_are_followed(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "e.jpg").touch()
    (folder / "link").symlink_to(elsewhere)
    assert "link/e.jpg" in list(image_names(folder))


@contextmanager
def web_server(answer):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def reply(handler, content, **headers):
    handler.send_response(int(headers.pop("status", 200)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


@pytest.mark.parametrize("where", ["headers", "body"])
@pytest.mark.slow
def test_a_server_that_drips_is_left_after_a_while(where):
    def drip(handler):
        if where == "body":
            handler.send_response(200)
            handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    with web_server(drip) as address:
        start = time.monotonic()
        with pytest.raises(ImageError, match=r"longer than 0\.3 seconds"):
            fetch(f"{address}/a.jpg", seconds=0.3)
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/a.jpg", "file:///etc/hostname", "data:image/png;base64,AAAA"])
@pytest.mark.slow
def test_redirects_lead_to_the_web_or_nowhere(target):
    server = web_server(lambda handler: reply(handler, b"", status=302, Location=target))
    with server as address, pytest.raises(ImageError, match="could not be fetched"):
        fetch(f"{address}/a.jpg")


@pytest.mark.slow
def test_redirects_within_the_web_are_followed():
    def answer(handler):
        reply(handler, b"found") if handler.path == "/b.jpg" else reply(handler, b"", status=302, Location="/b.jpg")

    with web_server(answer) as address:
        assert fetch(f"{address}/a.jpg") == b"found"


@pytest.mark.slow
def test_an_address_may_hold_any_letters():
    paths = []
    with web_server(lambda handler: (paths.append(handler.path), reply(handler, b"found"))) as address:
        assert fetch(f"{address}/f\u00fcr alle/\u732b.jpg?q=\u00e9&r=%20#part") == b"found"
    assert paths == ["/f%C3%BCr%20alle/%E7%8C%AB.jpg?q=%C3%A9&r=%20"]


@pytest.mark.parametrize("address", ["http://[::1/a.jpg", "http://", "http://a:port/b.jpg", "http://\u0000/a.jpg"])
def test_a_malformed_address_is_an_error_of_that_image(address):
    with pytest.raises(ImageError, match="could not be fetched"):
        fetch(address)
