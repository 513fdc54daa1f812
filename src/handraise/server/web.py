"""The web app's files, as they lie in the package. What the app does is in `web/`; it uses the public routes alone."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from handraise.server.declare import Declared, Tag, check_scope, declare, in_path, mount
from handraise.server.http import RouteNotFound
from handraise.tables.tokens import FILES
from handraise.text import words

__all__ = ["PAGE_HEADERS", "PATHS", "Web"]

FOLDER = Path(__file__).parents[1] / "web"
SHELL = "index.html"
AT_THE_ROOT = ("sw.js", "manifest.webmanifest")  # a service worker reaches no further than where it lies
PATHS = ("/", *(f"/{name}" for name in AT_THE_ROOT), "/app/")
LEAST_TO_PACK = 500  # bytes under which gzip gains nothing that a packet would notice

# What is served, by how its name ends; anything else in the folder is for those who work on it.
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
PACKED = frozenset({".png", ".woff2"})  # they are compressed already

PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; worker-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",  # with none at all, a browser sends a form from the origin "null"
    "x-content-type-options": "nosniff",
}
FILE_HEADERS = {"x-content-type-options": "nosniff"}

WEB = Tag("web", "The web app's files, and the pages behind answer links, which need no script.")
PATH_IN_PATH = in_path("path", meaning="Where the file lies among those of the app.", example="app.css")


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str
    may_pack: bool
    may_run: bool  # a page or a worker: what it may do is said with it

    @cached_property
    def tag(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:16]

    @cached_property
    def packed(self) -> bytes | None:
        """None where it would not be smaller."""
        if not self.may_pack or len(self.content) < LEAST_TO_PACK:
            return None
        packed = gzip.compress(self.content, mtime=0)
        return packed if len(packed) < len(self.content) else None

    def response(self, headers: Mapping[str, str], *, status: int = 200) -> Response:
        """For a request with these headers: whole, packed, or the word that what the caller has is still right."""
        packed = self.packed if _takes_gzip(headers.get("accept-encoding", "")) else None
        # A tag stands for bytes, and these differ.
        tag = f'"{self.tag}"' if packed is None else f'"{self.tag}-gzip"'
        told = (PAGE_HEADERS if self.may_run else FILE_HEADERS) | {
            "cache-control": "no-cache",
            "vary": "accept-encoding",
            "etag": tag,
        }
        if status == 200 and _names(headers.get("if-none-match", ""), self.tag):
            return Response(status_code=304, headers=told)
        if packed is not None:
            told["content-encoding"] = "gzip"
        # As a header of its own, since Starlette would add a charset to what has none.
        content = self.content if packed is None else packed
        return Response(content, status_code=status, headers=told | {"content-type": self.media_type})


class Web:
    """Every file is read once, at the start, so a request names one of them or nothing: there is no path to climb."""

    def __init__(self, folder: Path = FOLDER, *, catalogues: Path = words.FOLDER) -> None:
        self._files = dict(_files(folder))
        self._files |= {f"words/{path.name}": _words_of_the_web(path) for path in catalogues.glob("*.json")}

    def routes(self) -> list[Route]:
        return mount(self, guard=_require_files)

    def file(self, name: str) -> _File:
        """Raises RouteNotFound."""
        found = self._files.get(name)
        if found is None:
            raise RouteNotFound("the web app has no such file")
        return found

    async def signed_out(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The shell for a browser that brought no cookie. A link that was followed from another site brings none even
        where there is one, but the script of this page does, and takes over; until then it says how to sign in."""
        request = Request(scope)
        response = self.file(SHELL).response(request.headers, status=401)
        response.headers["www-authenticate"] = 'Bearer realm="handraise"'
        response.headers["cache-control"] = "no-store"
        await response(scope, receive, send)

    @declare(
        "GET /",
        id="show_the_front_page",
        summary="The web app. A browser that is not signed in gets the page too, with status 401; it says how to "
        "sign in",
        tag=WEB,
        scope="answer",
        replies={200: ("text/html", "A page.")},
    )
    async def _shell(self, request: Request) -> Response:
        return self.file(SHELL).response(request.headers)

    @declare(
        "GET /sw.js",
        id="read_the_service_worker",
        summary="The service worker of the web app",
        tag=WEB,
        scope="answer",
        replies={200: ("text/javascript", "A script.")},
    )
    @declare(
        "GET /manifest.webmanifest",
        id="read_the_manifest",
        summary="What a device has to know to install the web app",
        tag=WEB,
        scope="answer",
        replies={200: ("application/manifest+json", "A manifest.")},
    )
    async def _at_the_root(self, request: Request) -> Response:
        return self.file(request.url.path.removeprefix("/")).response(request.headers)

    @declare(
        "GET /app/{path:path}",
        id="read_a_file_of_the_app",
        summary="A file of the web app, with an ETag",
        tag=WEB,
        scope="answer",
        parameters=(PATH_IN_PATH,),
        replies={200: ("*/*", "The file.")},
        refusals=(RouteNotFound,),
    )
    async def _in_the_app(self, request: Request) -> Response:
        name = request.path_params["path"]
        if name in (SHELL, *AT_THE_ROOT):  # each file has one address
            raise RouteNotFound("the web app has no such file")
        return self.file(name).response(request.headers)


def _require_files(scope: Scope, said: Declared) -> None:
    """A cookie alone is enough for them. Raises Forbidden where the token may not answer, and so needs no app."""
    if FILES not in scope["token"].scopes:
        check_scope(scope, said)


def _files(folder: Path) -> Iterator[tuple[str, _File]]:
    for path in sorted(folder.rglob("*")):
        media_type = TYPES.get(path.suffix)
        if media_type is not None and path.is_file() and not path.name.startswith(("tsconfig", "jsconfig")):
            yield (
                path.relative_to(folder).as_posix(),
                _File(
                    path.read_bytes(),
                    media_type,
                    may_pack=path.suffix not in PACKED,
                    may_run=path.name in (SHELL, "sw.js"),
                ),
            )


def _words_of_the_web(catalogue: Path) -> _File:
    """Without those that only terminals say, which are a third."""
    told = {key: text for key, text in json.loads(catalogue.read_bytes()).items() if not key.startswith("terminal.")}
    content = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    return _File(content, TYPES[".json"], may_pack=True, may_run=False)


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        if name in ("gzip", "*"):
            return not any(each.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for each in parameters)
    return False


def _names(given: str, tag: str) -> bool:
    """Whether a list of tags names this content, packed or not."""
    known = {f'"{tag}"', f'"{tag}-gzip"'}
    return given.strip() == "*" or any(each.strip().removeprefix("W/") in known for each in given.split(","))
