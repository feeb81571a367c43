"""The page at ``/``: static files of the package, read once. No name from outside reaches the file system."""

from __future__ import annotations

from importlib import resources

from fastapi import FastAPI
from fastapi.responses import Response

from paceline.server.errors import ApiError

FILES = {"page.css": "text/css", "page.js": "text/javascript"}
POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
"""Nothing from other servers, and no page of theirs may frame this one. ``data:`` is for the empty icon."""


def add_page(app: FastAPI) -> None:
    """Add ``/`` and the files it needs."""
    folder = resources.files("paceline.server").joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in ("index.html", *FILES)}
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}

    async def page() -> Response:
        return Response(contents["index.html"], media_type="text/html", headers=headers)

    async def file(name: str) -> Response:
        if name not in FILES:
            raise ApiError(404, "there is no such file", code="unknown_path")
        return Response(contents[name], media_type=FILES[name], headers=headers)

    app.add_api_route("/", page, include_in_schema=False)
    app.add_api_route("/static/{name}", file, include_in_schema=False)
