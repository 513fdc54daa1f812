"""What the OpenAPI document says and what the desk does are the same (S1)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from starlette.routing import Route

from handraise.app import authors_of
from handraise.broker.counts import Lag
from handraise.chat import ChatSettings
from handraise.chat.runtime import Chats
from handraise.clock import SystemClock
from handraise.config import AgentTable
from handraise.people import People
from handraise.plugins import names
from handraise.server.compat import opencode, runbook, sandbox_agent
from handraise.server.openapi import document
from handraise.server.pages import Pages
from handraise.server.routes import audit, channels, chats, raw_messages, rules, sessions
from handraise.server.routes.acp import Acp
from handraise.server.routes.api import SignIn, routes
from handraise.server.routes.asks import AskRoutes
from handraise.server.routes.mcp import METHODS
from handraise.server.routes.runs import Runs
from handraise.server.routes.trust import TrustRoutes
from handraise.server.web import Web
from handraise.switchboard import Channels
from handraise.tables.raw_messages import Wires
from handraise.tables.tokens import Tokens
from tests.helpers.serving import Served, listening, path_of, refused, serving, serving_in_a_thread, told
from tests.helpers.trusting import trust_project

SCHEMAS: dict[str, Any] = document()["components"]["schemas"]
OPERATIONS: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": operation
    for path, methods in document()["paths"].items()
    for method, operation in methods.items()
}
SIGNED = ("POST /webhooks/{channel}",)  # no token, but whoever calls has to prove who it is
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def example(name: str) -> Any:
    return SCHEMAS[name]["examples"][0]


def validator(name: str) -> jsonschema_rs.Validator:
    document_schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    return jsonschema_rs.Draft202012Validator(document_schema, validate_formats=True)


# The document by itself -------------------------------------------------------------------------------------


def test_the_document_is_openapi_3_1_with_a_name_for_every_operation() -> None:
    assert document()["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(document()).validate()
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", id) for id in ids)
    assert all(operation["summary"] for operation in OPERATIONS.values())


@pytest.mark.parametrize("name", [name for name, schema in SCHEMAS.items() if "examples" in schema])
def test_every_example_fits_its_schema(name: str) -> None:
    validator(name).validate(example(name))


def test_every_refusal_has_a_code_and_a_sentence() -> None:
    for label, operation in OPERATIONS.items():
        refusals = {status: reply for status, reply in operation["responses"].items() if status >= "400"}
        assert {"403"} <= refusals.keys()
        assert ("401" in refusals) == (bool(operation["security"]) or label in SIGNED), label
        for status, reply in refusals.items():
            for content in reply["content"].values():
                choices = content["schema"].get("oneOf", [content["schema"]])
                names = [choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice]
                for name in (name for name in names if not name.startswith(("OpenCode", "Mcp", "Runbook"))):
                    assert {"error", "message"} <= set(SCHEMAS[name]["required"]), f"{label} {status}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AskBody", {"questions": []}),
        ("AskBody", {"questions": [{"question": "q"}], "permission": {"tool": "t"}}),
        ("AskBody", {"questions": [{"question": "q"}] * 51}),
        ("AskBody", {"questions": [{"question": "q" * 20_001}]}),
        ("AskBody", {"questions": [{"question": "q", "options": [{"label": "a"}] * 501}]}),
        ("AskBody", {"questions": [{"question": "q", "custom": False}]}),
        ("AskBody", {"questions": [{"question": "q"}], "id": "a\u2028b"}),
        ("AskBody", {"questions": [{"question": "q"}], "id": "@ci:1"}),
        ("AskBody", {"questions": [{"question": "q"}], "id": ".."}),
        ("AskBody", {"questions": [{"question": "q"}], "id": "x" * 401}),
        ("AskBody", {"questions": [{"question": "q"}], "origin": {"agent": "", "session": "s"}}),
        ("AskBody", {"permission": {"tool": ""}}),
        ("AskBody", {"permission": {"tool": "t", "replies": []}}),
        ("AskBody", {"permission": {"tool": "t"}, "question_timeout": 0}),
        ("AnswerBody", {}),
        ("AnswerBody", {"answers": "SQLite"}),
        ("AnswerBody", {"answers": [["a"]], "reply": "once"}),
        ("DeliveriesBody", {"deliveries": [{"id": ""}]}),
        ("ShowingBody", {"channel": "pager"}),
        ("ShowingBody", {"channel": "pager", "state": "sent", "left": True}),
        ("ShowingBody", {"channel": "pager", "state": "lost"}),
        ("TokenBody", {"name": "a:b", "scopes": ["ask"]}),
        ("TokenBody", {"name": "ci", "scopes": []}),
        ("SessionBody", {"agent": "claude"}),
        ("SessionBody", {"agent": "claude", "prompt": ""}),
        ("SessionBody", {"agent": "claude", "prompt": "hello", "mode": "yolo"}),
        ("SessionBody", {"agent": "claude", "prompt": "hello", "stale_after": 0.5}),
        ("PromptBody", {"prompt": ""}),
        ("RunBody", {"input": {}}),
        ("RunBody", {"workflow": "x" * 201}),
        ("RetryBody", {"from": ""}),
        ("RetryBody", {"dry_run": "yes"}),
        ("CheckpointBody", {"by": "ana"}),
        ("ChatBody", {"text": " "}),
        ("ChatBody", {"text": "x" * 100_001}),
        ("ChatMessageBody", {}),
        ("ChatMessageBody", {"text": ""}),
        ("ChatTitleBody", {"title": ""}),
        ("RunbookAnswer", {}),
        ("RunbookAnswer", {"reject": False}),
    ],
)
def test_what_the_desk_refuses_the_schema_refuses(name: str, value: Any) -> None:
    assert not validator(name).is_valid(value)


# Against the desk -------------------------------------------------------------------------------------------


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as desk:
        yield desk


async def test_every_route_is_in_the_document_and_the_reverse(desk: Served) -> None:
    broker, clock = desk.broker, SystemClock()
    ordinary: list[Route] = [
        *routes(broker, tokens=Tokens(broker.store, clock=clock), sign_in=SignIn(clock=clock), port=0, lag=Lag()),
        *sandbox_agent.routes(broker),
        *opencode.routes(broker),
        *runbook.routes(broker),
        *Runs(broker, authors=authors_of(desk.settings)).routes(),
        *audit.routes(broker),
        *channels.routes(broker, Channels(broker, (), people=People())),
        *chats.routes(Chats(broker, ChatSettings(), is_alone=True)),
        *Acp(broker, worker=None).routes(),
        *rules.routes(broker),
        *TrustRoutes(desk.settings).routes(),
        *sessions.routes(broker, worker=None),
        *raw_messages.routes(broker, wires=Wires(broker.store, clock=clock)),
        *Pages(broker, tokens=Tokens(broker.store, clock=clock)).routes(),
        *Web().routes(),
    ]
    served = {f"{method} {_shape(route.path)}" for route in ordinary for method in route.methods or {"GET"}}
    served = {label for label in served if not label.startswith("HEAD ")}
    # The framework matches two ids as one part and the route takes them apart, so that they may hold a slash.
    served = {re.sub(r"(/v1/sessions/{})(/re)", r"\1/questions/{}\2", label) for label in served}
    served |= {
        "POST /v1/asks",
        "GET /v1/asks",
        "GET /v1/asks/{}",
        "POST /v1/deliveries",
        "GET /v1/events",
        "POST /v1/leases",
    }
    served |= {"GET /v1/asks/{}/showings"}
    served |= {f"{method} /mcp" for method in METHODS}
    served |= {f"POST /v1/asks/{{}}/{action}" for action in AskRoutes(broker).actions}
    assert {_shape(label) for label in OPERATIONS} == served


async def test_no_other_method_is_taken_than_those_in_the_document(desk: Served) -> None:
    for path, methods in document()["paths"].items():
        response = await desk.http.patch(re.sub(r"{[^}]+}", "x", path))
        assert response.status_code == 405, path
        assert set(response.headers["allow"].split(", ")) - {"HEAD"} == {method.upper() for method in methods}


def _shape(path: str) -> str:
    return re.sub(r"{[^}]+}", "{}", path)


async def test_the_scopes_in_the_document_are_those_that_open_the_route(desk: Served) -> None:
    callers = {scope: await desk.caller(f"only-{scope}", scope) for scope in ("ask", "answer", "admin")}
    anybody = await desk.client()
    for label, operation in OPERATIONS.items():
        method, _, path = label.partition(" ")
        path = path.replace("{question_request}", "que_x").replace("{permission_request}", "per_x")
        path = re.sub(r"{[^}]+}", "x", path.replace("{opencode_session}", "ses_x"))
        if path.endswith(("/event", "/events")):
            continue  # a stream that opens does not end; see test_access
        is_for_browsers = bool(operation["security"]) and not any("bearer" in each for each in operation["security"])
        wanted = next(iter(operation["security"][0].values())) if operation["security"] else None
        status = (await anybody.request(method, path)).status_code
        assert (status == 401) == (wanted is not None or label in SIGNED), label
        for scope, caller in callers.items():
            status = (await caller.request(method, path)).status_code
            allowed = not is_for_browsers and (not wanted or scope in (*wanted, "admin"))
            assert (status == 403) != allowed, f"{label} with {scope}: {status}"


async def test_the_examples_are_what_the_desk_really_says(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    raised = await told(desk.http.post("/v1/asks", json=example("AskBody")), 201)
    answered = await told(ana.post(path_of("build-7", "answer"), json=example("AnswerBody")), 200)
    assert raised["fallback"] == example("Ask")["fallback"]
    assert _timeless(answered) == _timeless(example("Ask"))
    assert await told(desk.http.get("/v1/cursor"), 200) == example("Cursor")
    async with listening(desk.http, after=1) as listener:
        assert _timeless(json.loads((await listener.frame()).data)) == _timeless(example("Event"))
    assert _timeless(await told(desk.http.get("/v1/audit"), 200)) == {"lines": [_timeless(example("AuditLine"))]}
    reported = await told(desk.http.post("/v1/deliveries", json=example("DeliveriesBody")), 200)
    assert reported == example("Reported")
    session = await told(desk.http.get("/v1/sessions/claude%3A4f1c"), 200)
    assert _timeless(session) == _timeless(example("Session"))
    await refused(desk.http.post("/v1/sessions", json=example("SessionBody")), 422, "settings")  # no such folder here
    started = await told(desk.http.post("/v1/sessions", json={"agent": "scripted", "prompt": "hello"}), 201)
    assert started.keys() == example("Session").keys()
    await told(desk.http.post(f"/v1/sessions/{started['id']}/prompt", json=example("PromptBody")), 202)
    messages = await told(desk.http.get(f"/v1/sessions/{started['id']}/messages?wait=5"), 200)
    assert messages["messages"][0].keys() == example("Message").keys()
    assert (await told(desk.http.get("/healthz"), 200)).keys() == example("Health").keys()
    await told(desk.http.post("/v1/tokens", json=example("TokenBody")), 201)


async def test_the_examples_of_runs_are_what_the_desk_really_says(desk: Served, tmp_path: Path) -> None:
    file = tmp_path / ".handraise" / "workflows" / "shop.py"
    file.parent.mkdir(parents=True)
    file.write_text('from handraise.workflow import *\nw = Workflow("shop", checkpoint("review", input="Do this?"))\n')
    trust_project(tmp_path, home=desk.settings.home)
    run = await told(desk.http.post("/v1/runs", json={**example("RunBody"), "cwd": str(tmp_path)}), 201)
    validator("Run").validate(run)
    assert run.keys() == example("Run").keys()
    waiting = await told(desk.http.get(f"/v1/runs/{run['id']}?wait=20"), 200)
    assert waiting["state"] == example("Run")["state"]
    checkpoint = await told(desk.http.get(f"/v1/checkpoints/{run['id']}.review"), 200)
    assert checkpoint.keys() == example("Checkpoint").keys()
    validator("Checkpoint").validate(checkpoint)
    origin = {"agent": "a", "session": "s", "run": run["id"], "step": "plan"}
    await desk.ask(id="que_1", origin=origin)
    await desk.answer("que_1", "Postgres")
    trace = await told(desk.http.get(f"/v1/runs/{run['id']}/trace"), 200)
    validator("Trace").validate(trace)
    (answered,) = [event for event in trace["events"] if event["type"] == example("TraceEvent")["type"]]
    assert answered.keys() == example("TraceEvent").keys()
    validator("RunbookRun").validate(await told(desk.http.get(f"/runs/{run['id']}"), 200))
    validator("Workflows").validate(await told(desk.http.get(f"/v1/workflows?cwd={tmp_path}"), 200))
    await told(desk.http.post(f"/v1/checkpoints/{checkpoint['id']}", json={"output": True}), 200)


async def test_the_examples_of_refusals_are_what_the_desk_really_says(desk: Served) -> None:
    ci = await desk.caller("ci", "ask")
    ana = await desk.caller("ana", "answer")
    await told(desk.http.post("/v1/asks", json=example("AskBody")), 201)
    differs = desk.http.post("/v1/asks", json={**example("AskBody"), "questions": [{"question": "Other?"}]})
    two_values = desk.http.post(path_of("build-7", "answer"), json={"answers": [["SQLite", "Postgres"]]})
    said = {
        "BadRequest": await told(desk.http.get("/v1/asks/build-7?wait=-1"), 400),
        "BadCall": await told(desk.http.post("/webhooks/nobody"), 401),
        "Unauthorized": await told((await desk.client()).get("/v1/asks"), 401),
        "Forbidden": await told(ci.get("/v1/asks"), 403),
        "NotFound": await told(desk.http.delete("/v1/tokens/nobody"), 404),
        "AskNotFound": await told(desk.http.get("/v1/asks/nobody"), 404),
        "RuleNotFound": await told(desk.http.delete("/v1/rules/1f3a9c2e"), 404),
        "SessionNotFound": await told(desk.http.get("/v1/sessions/nobody"), 404),
        "PluginNotFound": await told(desk.http.post("/v1/sessions", json={"agent": "clippy", "prompt": "hello"}), 404),
        "RunNotFound": await told(desk.http.get("/v1/runs/nobody"), 404),
        "ChatNotFound": await told(desk.http.get("/v1/chats/nobody"), 404),
        "CheckpointNotFound": await told(desk.http.get("/v1/checkpoints/nobody"), 404),
        "AskDiffers": await told(differs, 409),
        "TooLarge": await told(desk.http.post("/v1/asks", content=b" " * (4 * 1024 * 1024 + 1)), 413),
        "AskDoesNotFit": await told(desk.http.post("/v1/asks", json={}), 422),
        "AnswerDoesNotFit": await told(two_values, 422),
        "Settings": await told(desk.http.post("/v1/tokens", json=example("TokenBody")), 422),
    }
    await told(ana.post(path_of("build-7", "answer"), json=example("AnswerBody")), 200)
    said["AlreadyAnswered"] = await told(desk.http.post(path_of("build-7", "reject")), 409)
    await told(desk.http.post(path_of("build-7", "withdraw")), 409)
    assert said["PluginNotFound"].pop("names")  # those that are installed here
    assert said["PluginNotFound"]["message"].startswith("agents: no 'clippy'; there are acp, amp, claude")
    del said["PluginNotFound"]
    for name, refusal in said.items():
        assert _timeless(refusal) == _timeless(example(name))


def _timeless(value: Any) -> Any:
    """With every time replaced, so that a reply of today equals an example of then."""
    match value:
        case dict():
            return {key: _timeless(entry) for key, entry in value.items()}
        case list():
            return [_timeless(entry) for entry in value]
        case str() if TIME.fullmatch(value):
            return "a time"
        case _:
            return value


# Schemathesis -----------------------------------------------------------------------------------------------

EXAMPLES = 15  # random ones an operation, beside the systematic ones at every limit
ADMIN = "a token that nobody can revoke while it is used"
KEPT = schemathesis.Config.from_dict(
    {
        "generation": {"deterministic": True, "max-examples": EXAMPLES},
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ["2xx", "3xx", 404, 409, 410]},
            "negative_data_rejection": {"expected-statuses": [400, 404, 409, 410, 413, 422]},
        },
        "operations": [
            {
                # Whether an answer fits depends on the ask, whether a name is free on the other tokens, whether a
                # session can be started on the machine, whether a rule's parts fit on each other, and whether a folder
                # is there.
                "include-operation-id": [
                    *("answer_an_ask", "reply_to_a_question_of_a_session", "add_a_token", "start_a_session"),
                    *("add_a_rule", "start_a_run", "list_workflows", "begin_a_chat", "look_at_a_project"),
                ],
                "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 404, 409, 410, 422]}},
            },
            {
                # The first message to an agent names it, and none is known here that it could name.
                "include-operation-id": "send_to_an_acp_agent",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 400, 404, 422]}},
            },
            {
                # Whoever names many links that lead nowhere is told to wait.
                "include-operation-id": ["show_an_answer_page", "send_an_answer_page"],
                "checks": {
                    "positive_data_acceptance": {"expected-statuses": ["2xx", 404, 429]},
                    "negative_data_rejection": {"expected-statuses": [400, 404, 429]},
                },
            },
            {
                # A token is all that these cases have.
                "include-operation-id": "trust_a_project",
                "checks": {
                    "positive_data_acceptance": {"expected-statuses": [403]},
                    "negative_data_rejection": {"expected-statuses": [403]},
                },
            },
            {
                # A path has to be absolute.
                "include-operation-id": "forget_a_project",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 400, 404]}},
            },
            {
                # Nobody here is called by the place of a channel.
                "include-operation-id": "call_a_channel",
                "checks": {
                    "positive_data_acceptance": {"expected-statuses": [401]},
                    "negative_data_rejection": {"expected-statuses": [401, 404]},
                },
            },
            {
                "include-tag": "opencode",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 400, 404]}},
            },
        ],
    }
)
# A stream never ends, so these are left out here; test_stream and the tests of the compat routes follow them. What MCP
# sends and gets is the protocol's own: test_mcp_http speaks it.
STREAMS = r"/events?$|^/mcp$"
operations = schemathesis.openapi.from_dict(document(), config=KEPT).exclude(path_regex=STREAMS)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]) -> Iterator[dict[str, str]]:
    """A desk on each kind of database: its address by its kind. Cases take long to think up, so each goes to all."""
    folder = tmp_path_factory.mktemp("desks")
    databases = {
        "memory": "sqlite:///:memory:",
        "sqlite": f"sqlite:///{folder / 'desk.db'}",
        "postgres": new_database(),
    }
    agents = {name: AgentTable(command=("false",)) for name in names("agents")}  # nothing real is started
    with ExitStack() as desks:
        yield {
            kind: desks.enter_context(serving_in_a_thread(folder / kind, database=address, token=ADMIN, agents=agents))
            for kind, address in databases.items()
        }


@operations.parametrize()
@settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
def test_the_desk_keeps_what_the_document_says(case: schemathesis.Case[Any], served: dict[str, str]) -> None:
    _do_not_wait(case)
    headers = {"Authorization": f"Bearer {ADMIN}"}
    checked: list[tuple[Any, ...]] = []
    for kind, url in served.items():
        response = case.call(base_url=url, headers=headers)
        said = response.status_code, response.headers, response.content
        if said in checked:
            continue
        try:
            case.validate_response(response, headers=headers, transport_kwargs={"base_url": url, "headers": headers})
        except BaseException as broken:
            broken.add_note(f"on a desk whose database is: {kind}")
            raise
        checked.append(said)


def _do_not_wait(case: schemathesis.Case[Any]) -> None:
    """A wait that the desk would grant becomes one of no time; what is no wait stays as it is."""
    try:
        granted = 0 <= float(case.query["wait"]) <= 300
    except (KeyError, TypeError, ValueError):
        return
    if granted:
        case.query["wait"] = 0
