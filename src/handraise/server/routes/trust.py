"""Trust in projects over HTTP: what the parts of one would do, a person's yes to them, and the end of it.

An agent of the same user may hold any token, so only a browser that signed in says yes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.config import Settings, load_elsewhere
from handraise.errors import Overloaded, PartChanged, SettingsError
from handraise.server.declare import TEXT, Parameter, Tag, declare, mount
from handraise.server.gate import token_of
from handraise.server.http import RouteNotFound, TooLarge, query, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.routes.runs import folder_here
from handraise.text.inert import inert
from handraise.trust import Trust, changed
from handraise.trust.project import SeenPart, look, parts_here
from handraise.wire import BadBody, parse
from handraise.wire import trust as shapes
from handraise.wire.trust import TrustBody

__all__ = ["TrustRoutes"]

T = TypeVar("T")

log = logging.getLogger(__name__)

LONGEST_LOOK = 25.0  # seconds; a browser that is told nothing for longer looks broken
MOST_CHARACTERS = 500_000  # of all that is told about a project
MOST_LINES = 5_000
TOO_LONG = "it says more than fits on a page; look at it with `handraise trust` in a terminal"
NO_TIME = "it takes too long to look at this project; try again, or run `handraise trust` in a terminal"

TRUST = Tag("trust", "What the files of a project would make happen, and which of it a person let them.")
PROJECT_CWD = Parameter(
    "cwd", schema=TEXT, meaning="A folder of the project, on the machine of the desk.", key="project_cwd"
)


class TrustRoutes:
    """Use as a context manager. Files of strangers are read in one thread of its own: a folder that takes long holds up
    whoever else looks at one, and nothing else of the desk."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trust = Trust(settings.trust_file)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trust")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def routes(self) -> list[Route]:
        return mount(self)

    @declare(
        "GET /v1/trust",
        id="look_at_a_project",
        summary="What is trusted, and with `cwd` what the project around that folder would make happen",
        tag=TRUST,
        scope="admin",
        parameters=(PROJECT_CWD,),
        replies={200: (shapes.Trust, "The projects that are trusted, and the parts of the one around `cwd`.")},
        refusals=(BadBody, SettingsError, Overloaded),
    )
    async def show(self, request: Request) -> Response:
        cwd = query(request.scope["query_string"], "cwd").get("cwd")
        body = await self._aside(lambda: to_json(self._told(cwd)))
        return _json(body)

    @declare(
        "POST /v1/trust",
        id="trust_a_project",
        summary="Trust parts of a project as a person saw them. Only a browser that signed in may: every token is "
        "refused",
        tag=TRUST,
        scope="admin",
        body=TrustBody,
        is_for_browsers=True,
        replies={200: (shapes.Trust, "The project, as it stands now.")},
        refusals=(BadBody, TooLarge, SettingsError, PartChanged, Overloaded),
    )
    async def add(self, request: Request) -> Response:
        browser = token_of(request.scope)
        body = parse(TrustBody, await read_body(request.scope, request.receive))
        end = time.monotonic() + LONGEST_LOOK
        told = await self._aside(lambda: to_json(self._add(body, end=end)))
        names = ", ".join(part.name for part in body.parts)
        log.info("%s trusts %s in %s", browser.name, inert(names, keep=""), inert(body.cwd, keep=""))
        return _json(told)

    @declare(
        "DELETE /v1/trust",
        id="forget_a_project",
        summary="Trust nothing any more of the project around a folder, which may be gone",
        tag=TRUST,
        scope="admin",
        parameters=(PROJECT_CWD,),
        replies={200: (shapes.TrustedProject, "What is not trusted any more.")},
        refusals=(BadBody, RouteNotFound, SettingsError, Overloaded),
    )
    async def forget(self, request: Request) -> Response:
        token = token_of(request.scope)
        cwd = query(request.scope["query_string"], "cwd").get("cwd", "")
        if not os.path.isabs(cwd) or "\0" in cwd:  # noqa: PTH117 - the folder may be gone
            raise BadBody("cwd is the absolute path of a folder in the project")
        forgotten = await self._aside(lambda: self._trust.forget_around(Path(cwd)))
        if forgotten is None:
            raise RouteNotFound("nothing there is trusted; `handraise trust --list` shows what is")
        project, names = inert(str(forgotten[0]), keep=""), [inert(name, keep="") for name in sorted(forgotten[1])]
        log.info("%s ends the trust in %s", token.name, project)
        return json_response({"project": project, "parts": names})

    async def _aside(self, work: Callable[[], T]) -> T:
        """Raises Overloaded where it takes too long; what was begun is finished all the same."""
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise Overloaded(NO_TIME) from None

    # In the thread --------------------------------------------------------------------------------------------------

    def _told(self, cwd: str | None) -> dict[str, Any]:
        seen, problems = ([], []) if cwd is None else self._look(cwd)
        trusted = self._trust.projects()
        return {
            "cwd": None if cwd is None else inert(cwd, keep=""),
            "parts": _parts_told(seen),
            "problems": [inert(problem, keep="") for problem in problems],
            "projects": [
                {"project": inert(project, keep=""), "parts": [inert(name, keep="") for name in sorted(parts)]}
                for project, parts in trusted.items()
            ],
        }

    def _look(self, cwd: str) -> tuple[list[SeenPart], list[str]]:
        folder = Path(folder_here(cwd))
        try:
            parts, problems = parts_here(folder, load_elsewhere(self._settings, cwd=folder))
            return [look(part, trust=self._trust) for part in parts], problems
        except OSError as problem:
            raise SettingsError(f"{cwd!r} cannot be looked at: {problem.strerror}") from None

    def _add(self, body: TrustBody, *, end: float) -> dict[str, Any]:
        """Everything is read again, and has to be what the person saw."""
        seen, _ = self._look(body.cwd)
        told = {each["name"]: each for each in _parts_told(seen)}
        by_name = {each.name: each for each in seen}
        for wanted in body.parts:
            found = told.get(wanted.name)
            if found is not None and found["problems"]:
                raise SettingsError(f"{wanted.name} cannot be trusted: {found['problems'][0]}")
            if found is None:
                raise changed(wanted.name)
        if time.monotonic() > end:
            raise Overloaded(NO_TIME)
        parts = [by_name[wanted.name].part for wanted in body.parts]
        self._trust.add(parts, seen=[wanted.fingerprint for wanted in body.parts])
        return self._told(body.cwd)


def _parts_told(parts: Sequence[SeenPart]) -> list[dict[str, Any]]:
    """As JSON. What does not fit on a page cannot be looked at there, so nobody can trust it there either."""
    characters, lines, told = MOST_CHARACTERS, MOST_LINES, []
    for each in parts:
        shown, problems, fingerprint = each.lines, each.problems, each.fingerprint
        texts = (*shown, *problems, *each.owners)
        characters, lines = characters - sum(map(len, texts)), lines - len(texts)
        if characters < 0 or lines < 0:
            shown, problems, fingerprint = (), (TOO_LONG,), None
        told.append(
            {
                "name": each.name,
                "kind": each.part.kind,
                "project": each.project,
                "state": each.state,
                "lines": shown,
                "problems": problems,
                "owners": each.owners[:100],
                "fingerprint": fingerprint,
            }
        )
    return told


def _json(body: bytes) -> Response:
    return Response(
        body,
        media_type="application/json",
        headers={"cache-control": "no-store", "x-content-type-options": "nosniff"},
    )


plugin = RouteGroup(handlers=(TrustRoutes,), routes=lambda desk: () if desk.trust is None else desk.trust.routes())
