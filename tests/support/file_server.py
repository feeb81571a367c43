"""A local package index and file server that breaks in the ways real ones do."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Site:
    """What is served, and how it misbehaves.

    ``cuts``: bytes after which each next file answer breaks off. ``ignores_range``: answers 200 with the
    whole file. ``json_api``: PEP 691 instead of HTML. ``requests``: (path, Range header) of each request.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    ignores_range: bool = False
    json_api: bool = True
    password: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def add_wheel(self, project: str, version: str, members: dict[str, bytes]) -> str:
        """Serve a wheel; return its file name."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as wheel:
            for name, data in members.items():
                wheel.writestr(name, data)
        name = f"{project.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files[name] = buffer.getvalue()
        self.hashes[name] = hashlib.sha256(buffer.getvalue()).hexdigest()
        return name

    def page(self, project: str) -> tuple[str, bytes]:
        names = [name for name in self.files if name.startswith(project.replace("-", "_") + "-")]
        if self.json_api:
            files = [
                {
                    "filename": name,
                    "url": f"../../files/{name}",
                    "hashes": {"sha256": self.hashes[name]} if self.hashes[name] else {},
                    "size": len(self.files[name]),
                }
                for name in names
            ]
            return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()
        links = [f'<a href="/files/{name}#sha256={self.hashes[name]}">{name}</a>' for name in names]
        return "text/html", "\n".join(links).encode()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append((self.path, self.headers.get("Range")))
            if site.password and site.password not in (self.headers.get("Authorization") or ""):
                self.send_error(401)
            elif self.path.startswith("/simple/"):
                self._send_page(self.path.split("/")[2])
            else:
                self._send_file(self.path.rsplit("/", 1)[-1])

        def _send_page(self, project: str) -> None:
            kind, body = site.page(project)
            if project == "absent":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _send_file(self, name: str) -> None:
            if name not in site.files:
                self.send_error(404)
                return
            body, start = site.files[name], 0
            stated = self.headers.get("Range")
            if stated and not site.ignores_range:
                start = int(stated.removeprefix("bytes=").rstrip("-"))
                if start >= len(body):
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            end = start + site.cuts.pop(0) if site.cuts else len(body)
            self.wfile.write(body[start:end])
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep quiet."""

    return Handler


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serve ``site`` on a free port until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
