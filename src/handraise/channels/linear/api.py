"""Calls to Linear, over GraphQL. Whatever goes wrong there is a SendFailed with a sentence for a person.

Linear tells most of its refusals in the body, be the status 200 or 400, and `extensions.type` is steadier than
`extensions.code`: an id that it does not know came as "invalid input" with INPUT_ERROR, a value it does not take as
"invalid input" with INVALID_INPUT. Both are read, and the status counts only where the body says nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from uuid import UUID
from xml.sax.saxutils import escape, quoteattr

import httpx2

from handraise.channels import SendFailed
from handraise.channels.linear.translate import Activity
from handraise.channels.linear.webhooks import Created, Prompted, read
from handraise.clock import Clock
from handraise.text.inert import inert
from handraise.transports.loose_json import mapping_of, one_line, text_of

__all__ = ["DOCUMENTS", "Access", "Api", "Me"]

log = logging.getLogger(__name__)

URL = "https://api.linear.app"
SCOPES = "read,write,app:assignable,app:mentionable"
LONGEST = 4 << 20  # bytes of an answer; a page of prompts is far below
PAGE, PAGES = 100, 50  # prompts of one answer, answers of one look; Linear gives up to 250 at once
MOST_SESSIONS = 250
SOON, LATER = 1.0, 60.0  # seconds after which to try again what may pass by itself, and what a person has to mend
LONGEST_LIMIT = 3600.0  # seconds; Linear's limits are per hour

DOCUMENTS = {
    "Me": "query Me { viewer { id name app } organization { id urlKey } }",
    "CreateActivity": """mutation CreateActivity($input: AgentActivityCreateInput!) {
        agentActivityCreate(input: $input) { success agentActivity { id createdAt } }
    }""",
    "HasActivity": "query HasActivity($id: String!) { agentActivity(id: $id) { id createdAt } }",
    "OpenSession": """mutation OpenSession($input: AgentSessionCreateOnIssue!) {
        agentSessionCreateOnIssue(input: $input) { success agentSession { id } }
    }""",
    "AddLink": """mutation AddLink($id: String!, $input: AgentSessionUpdateInput!) {
        agentSessionUpdate(id: $id, input: $input) { success }
    }""",
    "Links": "query Links($id: String!) { agentSession(id: $id) { externalLinks { url } } }",
    "Session": "query Session($id: String!) { agentSession(id: $id) { id archivedAt dismissedAt } }",
    "Sessions": """query Sessions($first: Int) {
        viewer { id }
        agentSessions(first: $first, orderBy: createdAt) {
            nodes {
                id createdAt status url archivedAt dismissedAt
                appUser { id }
                creator { id name email app }
                issue { id identifier title description url }
                comment { body parent { body } }
            }
        }
    }""",
    "Prompts": """query Prompts($filter: AgentActivityFilter, $first: Int, $after: String) {
        viewer { id }
        agentActivities(filter: $filter, first: $first, after: $after, orderBy: createdAt) {
            nodes {
                id createdAt signal
                user { id name email }
                agentSession { id appUser { id } }
                content { ... on AgentActivityPromptContent { body } }
            }
            pageInfo { hasNextPage endCursor }
        }
    }""",
}

OVER = ("complete", "error")  # any other status, known or not, can go on
TEXTS = {  # what the content of an activity needs, and what it may have
    "thought": (("body",), ()),
    "action": (("action", "parameter"), ("result",)),
    "elicitation": (("body",), ()),
    "response": (("body",), ()),
    "error": (("body",), ()),
}
PASSING = ("thought", "action")  # those that may be ephemeral

# Types and codes of refusals, in capitals with underscores.
LIMITED = {"RATELIMITED"}
UNKNOWN_TOKEN = {"AUTHENTICATION_ERROR", "UNAUTHENTICATED"}
FORBIDDEN = {"FORBIDDEN", "FEATURE_NOT_ACCESSIBLE", "USAGE_LIMIT_EXCEEDED"}
WRONG = {
    *("INVALID_INPUT", "INPUT_ERROR", "BAD_USER_INPUT", "USER_ERROR"),
    *("GRAPHQL_ERROR", "GRAPHQL_VALIDATION_FAILED", "GRAPHQL_PARSE_FAILED"),
}
TROUBLE = {"INTERNAL_ERROR", "INTERNAL_SERVER_ERROR", "NETWORK_ERROR", "LOCK_TIMEOUT", "BOOTSTRAP_ERROR"}

_SECRET = re.compile(r"[!-~]+")  # what a header takes: visible ASCII
_DIGITS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How we prove who we are: a token, or else the id and secret of the app, for which Linear gives one."""

    token: str | None = field(default=None, repr=False)  # of an app, or a person's key (lin_api_…)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """Who we are in Linear."""

    id: str
    name: str
    is_app: bool  # False: the token is a person's, and Linear lets nobody but an app act as an agent
    organization: str
    url_key: str  # the workspace in addresses: linear.app/<url_key>


class _Refused(SendFailed):
    """Linear said no to what was asked, in its own words."""

    def __init__(self, reason: str, *, again: float | None, unknown: bool) -> None:
        super().__init__(reason, again=again)
        self.unknown = unknown  # it knows nothing by that id


class _TokenRefused(SendFailed):
    pass


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Api:
    """Use as an async context manager. Every call raises SendFailed; one that Linear cannot mean raises ValueError."""

    def __init__(self, access: Access, *, url: str = URL, patience: float = 9.0, clock: Clock) -> None:
        try:
            parts = httpx2.URL(url)
        except httpx2.InvalidURL:
            parts = httpx2.URL("")
        if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo or parts.query or parts.fragment:
            raise ValueError(f"Linear's API has an address such as {URL}")
        if access.token is None and None in (access.client_id, access.client_secret):
            raise ValueError("Linear wants a token, or a client_id and a client_secret")
        self._url = url.rstrip("/")
        self._access = access
        self._patience = patience
        self._clock = clock
        self._token = access.token
        self.lacks: tuple[str, ...] = ()  # scopes that Linear did not give us with the token that we fetched
        self._renewing = asyncio.Lock()
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        is_tls = self._url.startswith("https:")
        self._http = httpx2.AsyncClient(
            follow_redirects=False,  # the token is for this address alone
            timeout=None,  # each exchange is bounded as a whole
            trust_env=is_tls,  # without TLS it is a stand-in nearby, to which no proxy leads
            verify=is_tls,  # and there is nothing to trust
            # What is not packed cannot unpack to more than we read.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "handraise"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._http is not None
        await self._http.aclose()

    async def me(self) -> Me:
        told = await self._call("Me")
        viewer, organization = mapping_of(told, "viewer"), mapping_of(told, "organization")
        if not text_of(viewer, "id"):
            raise _unreadable()
        return Me(
            id=text_of(viewer, "id"),
            name=text_of(viewer, "name"),
            is_app=viewer.get("app") is True,
            organization=text_of(organization, "id"),
            url_key=text_of(organization, "urlKey"),
        )

    async def create(self, *, id: str, session: str, activity: Activity, ephemeral: bool = False) -> str:
        """Post an activity. With the same id it is posted once, however often this is called.

        Returns when that was by Linear's clock, or nothing where Linear does not say.
        """
        _check(id, activity, ephemeral=ephemeral)
        fields: dict[str, Any] = {"id": id, "agentSessionId": session, "content": activity.content}
        if ephemeral:
            fields["ephemeral"] = True
        if activity.signal is not None:
            fields |= {"signal": activity.signal, "signalMetadata": activity.metadata}
        try:
            told = await self._call("CreateActivity", input=fields)
        except _Refused:
            # What Linear says to an id that is taken is nowhere written down.
            found = await self._activity(id)
            if found is None:
                raise
            return text_of(found, "createdAt")
        return text_of(mapping_of(_succeeded(told, "agentActivityCreate"), "agentActivity"), "createdAt")

    async def open_on_issue(self, issue: str, *, link: str | None) -> str:
        """The id of a new session on an issue, which is named by its id or as ENG-42.

        Linear has no way to repeat this safely: where it fails, a session may have been opened all the same.
        """
        links = {} if link is None else {"externalUrls": [{"label": "Open at the desk", "url": link}]}
        told = await self._call("OpenSession", input={"issueId": issue, **links})
        session = text_of(mapping_of(_succeeded(told, "agentSessionCreateOnIssue"), "agentSession"), "id")
        if not session:
            raise _unreadable()
        return session

    async def add_link(self, session: str, *, label: str, url: str) -> None:
        """Show a link with the session, once."""
        try:
            told = await self._call("AddLink", id=session, input={"addedExternalUrls": [{"label": label, "url": url}]})
        except _Refused:
            links = mapping_of(await self._call("Links", id=session), "agentSession").get("externalLinks")
            if not any(text_of(link, "url") == url for link in _entries(links)):
                raise
            return
        _succeeded(told, "agentSessionUpdate")

    async def sessions(self, *, since: datetime, limit: int = 50) -> list[Created]:
        """The sessions of this app that began after `since` and can go on, among the newest `limit` that Linear has;
        the oldest first.

        They read as their webhooks would, but for the context, which is put together here.
        """
        if not 1 <= limit <= MOST_SESSIONS:
            raise ValueError(f"Linear lists 1 to {MOST_SESSIONS} sessions at once")
        told = await self._call("Sessions", first=limit)
        me = text_of(mapping_of(told, "viewer"), "id")
        nodes = sorted(_nodes(told, "agentSessions"), key=lambda node: text_of(node, "createdAt"))
        live = [node for node in nodes if _is_ours(node, me) and not _is_gone(node) and node.get("status") not in OVER]
        new = [node for node in live if (_time(node, "createdAt") or since) >= since]
        return [created for node in new if isinstance(created := read(_as_created(node, me)), Created)]

    async def prompts(self, *, since: datetime) -> list[tuple[datetime, Prompted]]:
        """What people wrote in sessions of this app after `since`, the oldest first, each with its time.

        Take `since` from the last of those times, which are Linear's; one prompt of that instant may come again.
        """
        if since.tzinfo is None:
            raise ValueError("a time without a zone means another instant elsewhere")
        start = since.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        wanted = {"type": {"eq": "prompt"}, "createdAt": {"gt": start}}
        found: list[tuple[datetime, Prompted]] = []
        after: str | None = None
        for _ in range(PAGES):
            told = await self._call("Prompts", filter=wanted, first=PAGE, after=after)
            me = text_of(mapping_of(told, "viewer"), "id")
            for node in _nodes(told, "agentActivities"):
                session = mapping_of(node, "agentSession")
                prompted = read(_as_prompted(node))
                if isinstance(prompted, Prompted) and prompted.activity and _is_ours(session, me):
                    found.append((_time(node, "createdAt") or since, prompted))
            page = mapping_of(mapping_of(told, "agentActivities"), "pageInfo")
            before, after = after, text_of(page, "endCursor") or None
            if page.get("hasNextPage") is not True or after is None or after == before:
                break
        else:
            log.warning(
                "Linear has more than %d prompts since %s; the oldest of them are left out", PAGE * PAGES, start
            )
        return sorted(found, key=lambda each: each[0])

    async def is_gone(self, session: str) -> bool:
        """Whether nobody can answer there any more: dismissed, archived, or unknown to Linear."""
        try:
            told = await self._call("Session", id=session)
        except _Refused as refused:
            if refused.unknown:
                return True
            raise
        return _is_gone(mapping_of(told, "agentSession"))

    async def _activity(self, id: str) -> Mapping[str, Any] | None:
        try:
            found = mapping_of(await self._call("HasActivity", id=id), "agentActivity")
        except _Refused as refused:
            if refused.unknown or refused.again is None:
                return None
            raise
        return found if text_of(found, "id") == id else None

    # The wire ---------------------------------------------------------------------------------------------

    async def _call(self, name: str, /, **variables: Any) -> Mapping[str, Any]:
        """The data that a document gets. A token that Linear gave us is renewed once where it is refused."""
        if self._access.token is not None and not _SECRET.fullmatch(self._access.token):
            raise SendFailed(f"the token for Linear is not one; look at {self._setting}", again=LATER)
        token = self._token or await self._renew(None)
        try:
            return await self._query(name, variables, token=token)
        except _TokenRefused:
            if self._access.token is not None:
                raise
        return await self._query(name, variables, token=await self._renew(token))

    async def _query(self, name: str, variables: Mapping[str, Any], *, token: str) -> Mapping[str, Any]:
        body = {"query": DOCUMENTS[name], "operationName": name, "variables": variables}
        reply = await self._post(
            "/graphql",
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                # A person's key is sent bare, and refused where it is not.
                "Authorization": token if token.startswith("lin_api_") else f"Bearer {token}",
            },
        )
        told = _json(reply.body)
        data, errors = told.get("data"), list(_entries(told.get("errors")))
        if errors or told.get("errors"):
            # One field of many may fail while the rest is good. What was to be done is done only without any error.
            if DOCUMENTS[name].startswith("query") and isinstance(data, dict) and data and None not in data.values():
                log.debug("Linear answered %s in part: %s", name, self._words(errors))
                return data
            raise self._refusal(reply, errors)
        if reply.status != 200:
            raise self._refusal(reply, [])
        if not isinstance(data, dict) or None in data.values():
            raise _unreadable()
        return data

    async def _renew(self, refused: str | None) -> str:
        """The token in use, or a new one where it is the refused one. Each makes the one before invalid, so that calls
        which are refused together must not all fetch one."""
        async with self._renewing:
            if self._token is None or self._token == refused:
                self._token = None
                self._token = await self._fetch_token()
            return self._token

    async def _fetch_token(self) -> str:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._access.client_id or "",
            "client_secret": self._access.client_secret or "",
            "scope": SCOPES,
        }
        content = urlencode(form, errors="replace").encode()
        reply = await self._post("/oauth/token", content, {"Content-Type": "application/x-www-form-urlencoded"})
        told = _json(reply.body)
        if reply.status in (400, 401, 403) and not _kinds(list(_entries(told.get("errors")))) & LIMITED:
            raise SendFailed(
                f"Linear gives no token for this app; look at {self._setting}, and in Linear whether the app may use "
                "client credentials",
                again=LATER,
            )
        if reply.status != 200:
            raise self._refusal(reply, list(_entries(told.get("errors"))))
        token = text_of(told, "access_token")
        if not _SECRET.fullmatch(token):
            raise _unreadable()
        given = re.split(r"[\s,]+", text_of(told, "scope")) if told.get("scope") else SCOPES.split(",")
        self.lacks = tuple(scope for scope in SCOPES.split(",") if scope not in given)
        return token

    async def _post(self, path: str, content: bytes, headers: Mapping[str, str]) -> _Reply:
        """One exchange, whatever its status. Raises SendFailed without a cause, which could show what was sent."""
        assert self._http is not None, "use it as an async context manager"
        try:
            async with (
                asyncio.timeout(self._patience),
                self._http.stream("POST", self._url + path, content=content, headers=dict(headers)) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > LONGEST:
                        raise SendFailed(f"Linear's answer is longer than {LONGEST >> 20} MiB", again=LATER)
                return _Reply(response.status_code, response.headers, bytes(body))
        except TimeoutError:
            raise SendFailed(f"Linear did not answer within {self._patience:g} s", again=SOON) from None
        except (httpx2.HTTPError, UnicodeError) as failure:  # the second for a name that no machine can have
            if "CERTIFICATE_VERIFY_FAILED" in str(failure):
                raise SendFailed(
                    f"the certificate of {self._url} is not trusted here; set SSL_CERT_FILE to a file with the "
                    "authority that made it",
                    again=LATER,
                ) from None
            raise SendFailed(
                f"Linear cannot be reached at {self._url} ({type(failure).__name__}); check this machine's network",
                again=SOON,
            ) from None

    def _refusal(self, reply: _Reply, errors: Sequence[Mapping[str, Any]]) -> SendFailed:
        kinds, words = _kinds(errors), self._words(errors)
        if kinds & LIMITED or reply.status == 429:
            again = self._pause(reply.headers)
            return SendFailed(
                f"Linear has had too many calls from this app; it takes more in {again:.0f} s", again=again
            )
        if kinds & UNKNOWN_TOKEN or reply.status == 401:
            return _TokenRefused(f"Linear refuses the token; look at {self._setting}", again=LATER)
        if kinds & FORBIDDEN or reply.status == 403:
            return SendFailed(
                f"Linear does not let this app do that{words}; check its scopes ({SCOPES}) and the teams it may see",
                again=LATER,
            )
        if reply.status >= 500 and not errors:
            return SendFailed(f"Linear has trouble of its own (status {reply.status})", again=SOON)
        if not errors:
            return SendFailed(
                f"{self._url} does not answer as Linear does (status {reply.status}); look at `api` in the settings of "
                "the channel",
                again=LATER,
            )
        if kinds & WRONG:
            unknown = any(text_of(error, "message").casefold().startswith("entity not found") for error in errors)
            return _Refused(f"Linear does not take this{words}", again=None, unknown=unknown)
        again = SOON if kinds & TROUBLE or reply.status >= 500 else LATER
        return _Refused(f"Linear could not do this{words}", again=again, unknown=False)

    @property
    def _setting(self) -> str:
        """Where a person looks who mends our access."""
        if self._access.token is not None:
            return "LINEAR_TOKEN in the desk's environment, or what `token_env` names in the settings of the channel"
        return (
            "LINEAR_CLIENT_ID and LINEAR_CLIENT_SECRET in the desk's environment, or what `client_id_env` and "
            "`client_secret_env` name in the settings of the channel"
        )

    def _words(self, errors: Sequence[Mapping[str, Any]]) -> str:
        """What Linear says about it, for the end of a sentence."""
        for error in errors:
            shown = text_of(mapping_of(error, "extensions"), "userPresentableMessage") or text_of(error, "message")
            for secret in (self._token, self._access.client_secret):
                shown = shown.replace(secret, "…") if secret else shown
            if shown.strip():
                return f": {inert(one_line(shown)).rstrip('.')}"
        return ""

    def _pause(self, headers: Mapping[str, str]) -> float:
        """Seconds until Linear takes calls again. Its two budgets have the same headers; one with something left is
        not the one that stopped us."""
        resets = [
            reset - self._clock.now()
            for budget in ("requests", "complexity")
            if (reset := _number(headers, f"x-ratelimit-{budget}-reset")) is not None
            if not _number(headers, f"x-ratelimit-{budget}-remaining")
        ]
        seconds = max(resets) / 1000 if resets else _number(headers, "retry-after")
        if seconds is None:
            return LATER
        return min(max(1.0, seconds), LONGEST_LIMIT)


def _check(id: str, activity: Activity, *, ephemeral: bool) -> None:
    """Linear's schema takes any object as content, so what is wrong with ours is found here."""
    try:
        fits = UUID(id).version == 4 and str(UUID(id)) == id
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("the id of an activity is a UUID of version 4, in small letters")
    content, metadata = activity.content, activity.metadata or {}
    kind = content.get("type", "")
    if kind not in TEXTS:
        raise ValueError(f"an agent cannot create an activity of type {kind!r}")
    needed, allowed = TEXTS[kind]
    if not {*needed} <= content.keys() <= {"type", *needed, *allowed}:
        raise ValueError(f"{kind} has {', '.join((*needed, *allowed))}, not {', '.join(content)}")
    if not all(isinstance(value, str) for value in content.values()):
        raise ValueError(f"what {kind} says is text")
    if ephemeral and kind not in PASSING:
        raise ValueError("only a thought or an action may be ephemeral")
    match activity.signal:
        case None:
            if metadata:
                raise ValueError("metadata belong to a signal")
        case "select" | "auth" if kind != "elicitation":
            raise ValueError(f"the signal {activity.signal} belongs to an elicitation")
        case "select":
            options = metadata.get("options")
            if not isinstance(options, list) or not options or len([*_entries(options)]) != len(options):
                raise ValueError("select needs a list of options")
            if not all(isinstance(option.get("value"), str) for option in options):
                raise ValueError("each option of a select has a value")
        case "auth":
            if not text_of(metadata, "url"):
                raise ValueError("auth needs a url")
        case _:
            raise ValueError(f"an agent has no signal {activity.signal!r}")


def _succeeded(told: Mapping[str, Any], mutation: str) -> Mapping[str, Any]:
    payload = mapping_of(told, mutation)
    if payload.get("success") is not True:
        raise SendFailed("Linear says that it did not do this, and not why", again=LATER)
    return payload


def _unreadable() -> SendFailed:
    return SendFailed("Linear answered with something that cannot be read", again=SOON)


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _entries(given: Any) -> Iterator[Mapping[str, Any]]:
    yield from (entry for entry in given if isinstance(entry, dict)) if isinstance(given, list) else ()


def _nodes(told: Mapping[str, Any], connection: str) -> Iterator[Mapping[str, Any]]:
    return _entries(mapping_of(told, connection).get("nodes"))


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if _DIGITS.fullmatch(text) else None


def _kinds(errors: Sequence[Mapping[str, Any]]) -> set[str]:
    extensions = [mapping_of(error, "extensions") for error in errors]
    return {text_of(each, key).upper().replace(" ", "_") for each in extensions for key in ("type", "code")}


def _is_ours(session: Mapping[str, Any], me: str) -> bool:
    """Whether a session is with this app; a workspace may have other agents."""
    return bool(me) and text_of(mapping_of(session, "appUser"), "id") == me


def _is_gone(session: Mapping[str, Any]) -> bool:
    return bool(session.get("archivedAt") or session.get("dismissedAt"))


def _time(node: Mapping[str, Any], key: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text_of(node, key))
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _as_created(node: Mapping[str, Any], me: str) -> dict[str, Any]:
    """As the webhook tells it, which names nobody where another agent began the session, but us where we did."""
    creator, parent = mapping_of(node, "creator"), mapping_of(mapping_of(node, "comment"), "parent")
    is_another = creator.get("app") is True and text_of(creator, "id") != me
    session = {**node, "appUserId": me, "creator": None if is_another else creator}
    return {
        "type": "AgentSessionEvent",
        "action": "created",
        "agentSession": session,
        "promptContext": _context(mapping_of(node, "issue"), mapping_of(node, "comment")),
        "previousComments": [parent],
    }


def _as_prompted(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "AgentSessionEvent",
        "action": "prompted",
        "agentSession": mapping_of(node, "agentSession"),
        "agentActivity": node,
    }


def _context(issue: Mapping[str, Any], comment: Mapping[str, Any]) -> str:
    """In the form of Linear's own."""
    lines = []
    if issue:
        lines.append(f"<issue identifier={quoteattr(text_of(issue, 'identifier'))}>")
        for name in ("title", "description"):
            if text := text_of(issue, name):
                lines.append(f"<{name}>{escape(text)}</{name}>")
        lines.append("</issue>")
    if text := text_of(comment, "body"):
        lines.append(f"<comment>{escape(text)}</comment>")
    return "\n".join(lines)
