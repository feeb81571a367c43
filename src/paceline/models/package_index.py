"""Find a wheel on the package index that pip is set up for, without pip.

The index, its credentials, proxy and certificates come from where pip takes them: ``PIP_*`` variables, then
pip's configuration files (site, user, global), then pypi.org. Both forms of the simple API are read (PEP 691
JSON, PEP 503 HTML), and ``file://`` indexes.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import ssl
import sys
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from paceline.errors import DownloadError

DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT_SECONDS = 60.0
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_MAX_PAGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A wheel on an index. ``sha256`` is empty and ``size`` (bytes) 0 where the index states none."""

    url: str
    file_name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Where to look for wheels and how to get there."""

    urls: tuple[str, ...]
    ca_file: str | None
    proxy: str | None


def pip_settings() -> IndexSettings:
    """Return the index settings pip would use here (``PIP_CONFIG_FILE=/dev/null`` included)."""
    stated = _config_files_settings() | {
        name: value
        for name in ("index-url", "extra-index-url", "cert", "proxy")
        if (value := os.environ.get("PIP_" + name.upper().replace("-", "_")))
    }
    urls = [*stated.get("index-url", DEFAULT_INDEX).split(), *stated.get("extra-index-url", "").split()]
    return IndexSettings(tuple(urls), stated.get("cert"), stated.get("proxy"))


def _config_files_settings() -> dict[str, str]:
    settings: dict[str, str] = {}
    for path in _config_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            raise DownloadError(
                f"pip's configuration file {path} cannot be read ({error}): mend it"
            ) from error
        for section in ("global", "download"):
            if parser.has_section(section):
                settings.update(parser.items(section))
    return settings


def _config_files() -> list[Path]:
    """Return pip's configuration files, the weakest first (pip documentation, "Configuration Files")."""
    override = os.environ.get("PIP_CONFIG_FILE")
    if override == os.devnull:
        return []
    home = Path.home()
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    if sys.platform == "win32":
        system = [Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData")) / "pip" / name]
        user = [home / "pip" / name, Path(os.environ.get("APPDATA", str(home))) / "pip" / name]
    elif sys.platform == "darwin":
        system = [Path("/Library/Application Support/pip") / name]
        user = [
            home / ".pip" / name,
            home / "Library/Application Support/pip" / name,
            home / ".config/pip" / name,
        ]
    else:
        folders = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)
        system = [*(Path(folder) / "pip" / name for folder in folders), Path("/etc") / name]
        config_home = Path(os.environ.get("XDG_CONFIG_HOME", home / ".config"))
        user = [home / ".pip" / name, config_home / "pip" / name]
    return [*system, *user, Path(sys.prefix) / name, *([Path(override)] if override else [])]


def find_wheel(project: str, version: str, settings: IndexSettings) -> WheelFile:
    """Return the wheel of ``project`` ``version`` from the first index that has it.

    Raises ``DownloadError`` when no index has it or none can be reached, with what each answered.
    """
    answers: list[str] = []
    for index in settings.urls:
        page_url = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', project).lower()}/"
        try:
            files = _read_page(page_url, settings)
        except (OSError, ValueError) as error:
            answers.append(f"{_without_credentials(index)}: {reason(error)}")
            continue
        for file in files:
            if file.file_name.endswith(".whl") and file.file_name.split("-")[1] == version:
                return file
        answers.append(f"{_without_credentials(index)}: has no wheel of that version")
    raise DownloadError(
        f"{project}=={version} cannot be found ({'; '.join(answers)}): check the network, or point "
        "PIP_INDEX_URL (or pip's configuration) to an index that has it"
    )


def _read_page(url: str, settings: IndexSettings) -> list[WheelFile]:
    if url.startswith("file:"):
        page = Path(urllib.request.url2pathname(urlsplit(url).path)) / "index.html"
        return _parse_html(page.read_text(encoding="utf-8"), url)
    with open_url(url, settings, {"Accept": _ACCEPT}) as response:
        body = response.read(_MAX_PAGE_BYTES)
        kind = response.headers.get_content_type()  # type: ignore[attr-defined]
        final_url = response.geturl()  # type: ignore[attr-defined]
    if kind.endswith("json"):
        return _parse_json(body, final_url)
    return _parse_html(body.decode("utf-8", "replace"), final_url)


def _parse_json(body: bytes, base: str) -> list[WheelFile]:
    try:
        return [
            WheelFile(
                urljoin(base, file["url"]),
                file["filename"],
                file.get("hashes", {}).get("sha256", ""),
                int(file.get("size") or 0),
            )
            for file in json.loads(body)["files"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"answered with JSON that is no file list ({error!r})") from error


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _parse_html(page: str, base: str) -> list[WheelFile]:
    parser = _Links()
    parser.feed(page)
    files = []
    for link in parser.links:
        url, fragment = urldefrag(urljoin(base, link))
        sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        files.append(WheelFile(url, unquote(urlsplit(url).path.rsplit("/", 1)[-1]), sha256, 0))
    return files


def open_url(url: str, settings: IndexSettings, headers: dict[str, str]) -> IO[bytes]:
    """Open ``url`` (an ``HTTPResponse``). Credentials inside it are sent as basic authorisation."""
    parts = urlsplit(url)
    headers = {"User-Agent": "paceline", **headers}
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    opener = _opener(settings)
    response: IO[bytes] = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    return response


@cache
def _opener(settings: IndexSettings) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPSHandler(context=_tls_context(settings.ca_file))
    ]
    if settings.proxy:
        handlers.append(urllib.request.ProxyHandler({"http": settings.proxy, "https": settings.proxy}))
    return urllib.request.build_opener(*handlers)


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a verifying context: the user's bundle, else the system's, else (there is none) certifi's."""
    if ca_file:
        try:
            return ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise DownloadError(
                f"the certificate bundle {ca_file!r} (PIP_CERT or pip's cert) cannot be read: {error}"
            ) from error
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None and sys.platform != "win32":
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    return ssl.create_default_context()


def reason(error: BaseException) -> str:
    """Return a network error in a few words."""
    if isinstance(error, HTTPError):
        return f"answered {error.code} {error.reason}"
    if isinstance(error, URLError):
        return f"cannot be reached ({error.reason})"
    return str(error) or type(error).__name__


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
