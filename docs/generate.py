"""Writes the pages of docs/reference/ from the code they describe; with `--check` only says which of them are stale.

Names, types, defaults, routes and codes are read from the code. What a setting or an event means is written down here,
and a name that has no words yet, or words without a name, ends the run.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from handraise import cli, config, errors, events, plugins
from handraise.agents._modes import MODES, Modes
from handraise.agents._versions import Known
from handraise.asks import LONGEST_NAME, LONGEST_TEXT, MOST_OPTIONS, MOST_QUESTIONS, Handling, Mode
from handraise.channels.notify import FIELDS as NOTIFY_FIELDS
from handraise.cli import root
from handraise.cli.commands import DEFAULT
from handraise.config import tables
from handraise.errors import HandraiseError
from handraise.rules.book import PATIENCE
from handraise.rules.reading import FIELDS as RULE_FIELDS
from handraise.rules.reading import LONGEST_TIMEOUT
from handraise.server import http
from handraise.server.openapi import document
from handraise.text.words import LANGUAGES
from handraise.wire import HandlingBody, json_schemas
from handraise.workflow import trace

FOLDER = Path(__file__).parent / "reference"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    check = parser.parse_args().check
    stale = [name for name, text in pages() if not _is(FOLDER / name, text)]
    if check and stale:
        sys.exit(f"stale, run `make docs`: {', '.join(f'docs/reference/{name}' for name in stale)}")
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages():
        if name in stale:
            (FOLDER / name).write_text(text)
            print(f"wrote docs/reference/{name}")


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of every page."""
    for name, write in (
        ("cli.md", cli_page),
        ("http.md", http_page),
        ("settings.md", settings_page),
        ("events.md", events_page),
        ("errors.md", errors_page),
        ("agents.md", agents_page),
    ):
        yield name, "\n".join(write()).rstrip() + "\n"


def _is(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


# Markdown ---------------------------------------------------------------------------------------------------


def head(title: str, *about: str) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield "<!-- Written by docs/generate.py from the code. Change it there, then `make docs`. -->"
    yield ""
    for paragraph in about:
        yield paragraph
        yield ""


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |"
    yield ""


def code(text: str, language: str) -> Iterator[str]:
    yield f"```{language}"
    yield from text.rstrip().splitlines()
    yield "```"
    yield ""


def quoted(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in values)


def worded(words: Mapping[str, str], names: set[str], what: str) -> Mapping[str, str]:
    """The words, if there are some for each name and for nothing else."""
    missing, spare = names - words.keys(), words.keys() - names
    if missing or spare:
        sys.exit(f"docs/generate.py: {what}: say what {sorted(missing)} means, forget {sorted(spare)}")
    return words


# The command line -------------------------------------------------------------------------------------------


class Parameter(NamedTuple):
    names: tuple[str, ...]  # as they are typed; the metavar of an argument
    takes: str
    default: str
    help: str
    is_argument: bool


class Command(NamedTuple):
    name: str  # every word after `handraise`
    callback: Callable[..., Any]
    epilog: str


def commands() -> Iterator[Command]:
    """Every command in the order of `--help`."""
    for name in (name for names in root.commands().values() for name in names):
        found = root.load(name)
        if isinstance(found.run, typer.Typer):
            yield from _commands_of(found.run, name)
        else:
            yield Command(name, found.run, found.examples)


def _commands_of(group: typer.Typer, prefix: str) -> Iterator[Command]:
    alone = group.registered_callback
    if alone is not None and alone.callback is not None:  # what the name does by itself
        yield Command(prefix, alone.callback, str(group.info.epilog or ""))
    for info in group.registered_commands:
        assert info.callback is not None
        name = info.name or info.callback.__name__.replace("_", "-")
        yield Command(
            prefix if name == DEFAULT and info.hidden else f"{prefix} {name}", info.callback, info.epilog or ""
        )


def parameters(command: Command) -> Iterator[Parameter]:
    hints = get_type_hints(command.callback, include_extras=True)
    for name, parameter in inspect.signature(command.callback).parameters.items():
        if hints[name] is typer.Context:
            continue
        yield _parameter(name, hints[name], parameter.default)


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    kind, info = _declared(hint)
    is_required = default is inspect.Parameter.empty
    takes = _takes(kind, info.metavar, several=_is_list(hint))
    shown = "required" if is_required else "" if default in (None, "", False) else f"`{default}`"
    if isinstance(info, ArgumentInfo):
        metavar = info.metavar or name.upper()
        usual = metavar if is_required else f"[{metavar}]"
        usual += "…" if _is_list(hint) else ""
        return Parameter((usual,), takes, shown, info.help or "", True)
    # Inside Annotated the first name of an option stands where its default otherwise is.
    declared = (each for given in (info.default, *(info.param_decls or ())) for each in str(given).split("/"))
    names = tuple(each for each in declared if each.startswith("-"))
    return Parameter(names or (f"--{name.replace('_', '-')}",), takes, shown, info.help or "", False)


def _declared(hint: Any) -> tuple[Any, OptionInfo | ArgumentInfo]:
    assert get_origin(hint) is Annotated, hint
    kind, info = get_args(hint)[:2]
    assert isinstance(info, OptionInfo | ArgumentInfo)
    return _without_none(kind), info


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    return kind


def _is_list(hint: Any) -> bool:
    return get_origin(_without_none(get_args(hint)[0])) is list


def _takes(kind: Any, metavar: str | None, *, several: bool) -> str:
    if several:
        (kind,) = get_args(kind)
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        text = quoted(get_args(kind))
    elif hasattr(kind, "__members__"):
        text = quoted(kind.__members__)
    else:
        text = metavar or {int: "NUMBER", float: "NUMBER"}.get(kind, "TEXT")
    return f"{text}; repeatable" if several else text


def cli_page() -> Iterator[str]:
    moved = ", ".join(f"`{name}` for `{group} {name}`" for name, group in root.MOVED.items())
    yield from head(
        "Commands",
        "Every command has `--help` (`-h`) with the same words. `handraise --version` prints the version. "
        "`handraise --install-completion` lets your shell complete commands and ids, and "
        "`handraise --show-completion` prints what that would add.",
        "Commands look for the desk at `--url`, then `HANDRAISE_URL`, then the desk of `HANDRAISE_HOME`, then "
        f"`{config.DEFAULT_URL}`.",
        "`handraise` alone on a terminal shows what waits and what to type next.",
        f"These are short for others: {moved}.",
    )
    yield "## Exit codes"
    yield ""
    yield from table(("code", "meaning"), [(f"`{code}`", said) for code, said in EXIT_CODES.items()])
    for command in commands():
        yield from _command_section(command)


EXIT_CODES = {
    "0": "done; for `ask`: answered, and the values are printed, one a line",
    "1": "failed, or the ask was withdrawn, or somebody else was faster",
    "2": "usage: an option, a setting or an answer that does not fit; nothing was changed",
    "3": "something waits for a person, or `ask --timeout` ran out and the ask stays open",
    "4": "rejected: a person or policy said no",
    "5": "no desk was reached; a desk that was reached once is waited for while it restarts",
    "130": "Ctrl+C",
}


def _command_section(command: Command) -> Iterator[str]:
    known = list(parameters(command))
    arguments = [each for each in known if each.is_argument]
    options = [each for each in known if not each.is_argument]
    yield f"## handraise {command.name}"
    yield ""
    yield " ".join((inspect.getdoc(command.callback) or "").split())
    yield ""
    words = ["handraise", command.name, *(["[OPTIONS]"] if options else []), *(each.names[0] for each in arguments)]
    yield from code(" ".join(words), "text")
    yield from table(("argument", "meaning"), [(f"`{each.names[0]}`", each.help) for each in arguments])
    rows = [(quoted(each.names), each.takes, each.default, each.help) for each in options]
    yield from table(("option", "takes", "default", "meaning"), rows)
    yield from code(command.epilog.replace("\b\n", ""), "text")


# HTTP -------------------------------------------------------------------------------------------------------

_METHODS = ("get", "post", "put", "patch", "delete")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every route."""
    for path, item in document()["paths"].items():
        for method in _METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def http_page() -> Iterator[str]:
    yield from head(
        "HTTP",
        "A running desk serves this as an OpenAPI document at `GET /openapi.json`.",
        document()["info"]["description"],
        f"Limits: a body of {http.MOST_BYTES // 1024 // 1024} MiB, {MOST_QUESTIONS} questions an ask, {MOST_OPTIONS} "
        f"options a question, {LONGEST_TEXT:,} characters a text, {LONGEST_NAME} characters a name. "
        "The codes of refusals are in [errors](errors.md).",
    )
    for tag in document()["tags"]:
        yield f"## Routes: {tag['name']}"
        yield ""
        yield tag["description"]
        yield ""
        for method, path, operation in operations():
            if tag["name"] in operation["tags"]:
                yield from _operation(f"{method} {path}", operation)
    yield "## Records"
    yield ""
    for name, schema in document()["components"]["schemas"].items():
        if is_record(schema):
            yield from _record(name, schema)


def refusal_code(schema: Mapping[str, Any]) -> str | None:
    code: str | None = schema.get("properties", {}).get("error", {}).get("const")
    return code


def is_record(schema: Mapping[str, Any]) -> bool:
    return "properties" in schema and refusal_code(schema) is None


def _operation(route: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {route}"
    yield ""
    yield f"{operation['summary']}."
    yield ""
    yield f"Token: {_token(operation)}."
    yield ""
    rows = []
    for reference in operation.get("parameters", ()):
        parameter = document()["components"]["parameters"][reference["$ref"].rpartition("/")[2]]
        schema = parameter["schema"]
        limits = f" Takes {limits_of(schema)}." if schema.get("maximum", 2**62) < 2**62 else ""
        rows.append((f"`{parameter['name']}`", parameter["in"], kind_of(schema), parameter["description"] + limits))
    yield from table(("parameter", "in", "type", "meaning"), rows)
    body = operation.get("requestBody")
    if body is not None:
        optional = "" if body["required"] else ", may be left out"
        yield f"Body: {kind_of(body['content']['application/json']['schema'])}{optional}."
        yield ""
    replies = [(status, _content(reply), reply["description"]) for status, reply in operation["responses"].items()]
    yield from table(("status", "body", "meaning"), sorted(replies))


def _token(operation: dict[str, Any]) -> str:
    if not operation["security"]:
        return "none"
    if not any("bearer" in enough for enough in operation["security"]):
        return "refused; only a browser that signed in"
    scopes = next(iter(operation["security"][0].values()))
    return f"scope {quoted(scopes)}" if scopes else "any"


def _content(reply: dict[str, Any]) -> str:
    for media, content in reply.get("content", {}).items():
        return kind_of(content["schema"]) if media == "application/json" else f"`{media}`"
    return ""


def _record(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if schema.get("description"):
        yield schema["description"].partition("\n")[0]
        yield ""
    required = schema.get("required", ())
    rows = []
    for field, about in schema["properties"].items():
        default = about.get("default")
        needed = "required" if field in required else "" if default in (None, [], "") else f"`{json.dumps(default)}`"
        said = [limits_of(about), about.get("description", "")]
        rows.append((f"`{field}`", kind_of(about), needed, ". ".join(filter(None, said))))
    yield from table(("field", "type", "default", "limits and meaning"), rows)
    if name != "Event":  # nothing but the ask again
        for example in schema.get("examples", ()):
            yield from code(pretty(example), "json")


def kind_of(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            schema = document()["components"]["schemas"][name]
            if refusal_code(schema) is not None:
                return f"[`{refusal_code(schema)}`](errors.md)"
            return f"[{name}](#{name.lower()})" if is_record(schema) else "object" if name == "Document" else name
        case {"anyOf": branches} | {"oneOf": branches}:
            return " or ".join(dict.fromkeys(kind_of(branch) for branch in branches))
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"enum": values}:
            return quoted(values)
        case {"type": "array", "items": items}:
            return f"list of {kind_of(items)}"
        case {"type": "array", "prefixItems": _} | {"type": "array"}:
            return "list"
        case {"type": [*kinds]}:
            return " or ".join(_word(kind) for kind in kinds)
        case {"type": kind}:
            return _word(kind) if schema.get("format") != "date-time" else "time"
        case _:
            return "anything"


def _word(kind: str) -> str:
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(kind, kind)


def limits_of(schema: Mapping[str, Any]) -> str:
    schemas = [schema, *schema.get("anyOf", ())]
    found = {key: value for each in schemas for key, value in each.items()}
    said = []
    for least, most, what in (("minLength", "maxLength", "characters"), ("minItems", "maxItems", "entries")):
        low, high = found.get(least), found.get(most)
        if low and high:
            said.append(f"{low:,} to {high:,} {what}")
        elif high:
            said.append(f"at most {high:,} {what}")
        elif low:
            said.append("at least one")
    if "exclusiveMinimum" in found:
        said.append(f"more than {found['exclusiveMinimum']:,}")
    if "maximum" in found:
        said.append(f"at most {found['maximum']:,}")
    if found.get("default") is not None and "maximum" in found:
        said.append(f"{found['default']:,} unless said otherwise")
    return "; ".join(said)


def pretty(value: Any, *, indent: str = "") -> str:
    """JSON, with everything that fits into a line on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(line) < 110:
        return line
    inner = indent + "  "
    if isinstance(value, list):
        entries = [pretty(entry, indent=inner) for entry in value]
    else:
        entries = [f"{json.dumps(key)}: {pretty(entry, indent=inner)}" for key, entry in value.items()]
    start, end = "[]" if isinstance(value, list) else "{}"
    return f"{start}\n{inner}" + f",\n{inner}".join(entries) + f"\n{indent}{end}"


# Settings ---------------------------------------------------------------------------------------------------

POLICY = {
    "question_policy": "Who decides a question. A name, or `auto` with a list of rules (`match`, `answers`).",
    "permission_policy": "Who decides a permission. Nothing here grants one.",
    "question_timeout": "Seconds until `on_timeout` decides, for questions and permissions. At most a year. "
    "Without it an ask waits until somebody answers.",
    "on_timeout": "What happens then to a question. A permission is always denied.",
}

RULES = {
    "tool": "A pattern for the tool: `shell`, `edit`, `read`, `fetch`, `mcp`, `plan`, `*`, or the agent's own name.",
    "action": "`allow`, `reject`, `ask` or `delegate`.",
    "matches": "Arguments and their patterns, a table: a pattern, a list of patterns, `true` or `false`.",
    "agent": "Only for this agent; a pattern.",
    "context": "Only for the `thread` or only for a `subagent`.",
    "message": "What a rejected agent is told.",
    "to": "The program that decides for `delegate`: a text, or a list with its arguments.",
    "timeout": f"Seconds that this program has, up to {LONGEST_TIMEOUT:.0f}. Default: {PATIENCE:.0f}.",
}

NOTIFY = {
    "urls": "Addresses of a place that others read too, in the form of Apprise; a list.",
    "urls_env": "A variable of the desk that holds such addresses, with blanks or ends of lines between them.",
    "language": f"The language of messages: {' or '.join(f'`{name}`' for name in LANGUAGES)}. Default: "
    f"`{LANGUAGES[0]}`.",
}
CHANNEL_OF_PERSON = "How the channel of that name knows this person: an id or a mail address. One for each channel."

FILES = {
    "token": "the admin token of this home, readable by you alone",
    "desk.json": "address and process of the running desk, and the key that proves who it is; removed when it ends",
    "desk.db": "the database, with `desk.db-wal` and `desk.db-shm` beside it while the desk runs",
    "desk.db.lock": "held by the one desk of this database",
    "trusted.json": "which parts of projects you [trust](../howto/trust.md), with their content at that time",
    "worker.lock": "held by the one process that runs the sessions of this home",
}


def variables() -> set[str]:
    """The variables that the settings are read from."""
    return set(re.findall(r'"(HANDRAISE_[A-Z]+)"', inspect.getsource(config.load)))


def settings_page() -> Iterator[str]:
    yield from head(
        "Settings",
        "An option of a command counts most, then `handraise.toml`, then your own `config.toml`, then the default. "
        "An unknown setting ends the command with an error and exit code 2.",
    )
    yield "## Variables"
    yield ""
    words = worded(tables.VARIABLES, variables(), "variables")
    yield from table(("variable", "meaning"), [(f"`{name}`", said) for name, said in words.items()])
    yield "`NO_COLOR` and `FORCE_COLOR` work as usual. `XDG_CONFIG_HOME` and `XDG_DATA_HOME` move the default folders."
    yield ""
    yield "## Files"
    yield ""
    yield "handraise looks for `handraise.toml` in the folder you are in, then in the folders above; the first one"
    yield "counts. `config.toml` is in your config folder, on Linux `~/.config/handraise/config.toml`. Both have the"
    yield "tables below. What a `handraise.toml` forbids counts at once. The rest counts after you"
    yield "[trust](../howto/trust.md) it. A relative path in a command begins in the folder of the file that names it."
    yield ""
    yield "### [policy]"
    yield ""
    yield "Who decides asks from here ([how to](../howto/policies.md)). `handraise ask`, `handraise start` and the SDK"
    yield "send the policy of the folder in which they work. A call over HTTP without a policy gets the desk's own."
    yield ""
    yield from table(("setting", "takes", "default", "meaning"), list(_policy_rows()))
    yield "### [desk]"
    yield ""
    yield "For `handraise serve`, in your own `config.toml` only: a project may not open your desk to others, and may"
    yield "not make it forget."
    yield ""
    yield from _settings_with_defaults(tables.DeskTable)
    yield "### [terminal]"
    yield ""
    yield "How the prompt looks, in your own `config.toml` only ([how to](../howto/answer.md#in-full-mode))."
    yield ""
    yield from _settings_with_defaults(tables.TerminalTable)
    yield "### [[rules]]"
    yield ""
    yield "Rules decide permissions before a person is asked, one table for each rule ([how to](../howto/rules.md)). A"
    yield "project's rules that allow something count after the file is trusted."
    yield ""
    rules = worded(RULES, set(RULE_FIELDS), "[[rules]]")
    yield from table(("setting", "meaning"), [(f"`{name}`", said) for name, said in rules.items()])
    yield "### [agents]"
    yield ""
    yield "A table for each agent, such as `[agents.claude]`: how it is started here ([how to](../howto/sessions.md))."
    yield ""
    yield from _settings(tables.AgentTable)
    yield "### [channels]"
    yield ""
    yield "A table for each place where people are told what waits, such as `[channels.notify]`, in your own"
    yield "`config.toml` only. All other settings there are the channel's own. `handraise channels` shows the state of"
    yield "each."
    yield ""
    yield from _settings(tables.ChannelTable)
    yield "`[channels.notify]` sends people a link ([how to](../howto/phone.md#notifications)):"
    yield ""
    notify = worded(NOTIFY, set(NOTIFY_FIELDS), "[channels.notify]")
    yield from table(("setting", "meaning"), [(f"`{name}`", said) for name, said in notify.items()])
    yield "`[channels.linear]` lets agents work on issues; see [its settings](../howto/linear.md#settings)."
    yield ""
    yield "### [people]"
    yield ""
    yield "A table for each person who answers in channels, such as `[people.ana]`, in your own `config.toml` only."
    yield "Nobody else may answer there."
    yield ""
    yield from _settings(tables.PersonTable, NAME=CHANNEL_OF_PERSON)
    yield "### [models]"
    yield ""
    yield "A table for each model that people may talk to, such as `[models.local]`, in your own `config.toml` only,"
    yield "because it says where your keys are sent ([how to](../howto/chat.md))."
    yield ""
    yield from _settings(tables.ModelTable)
    yield "### [chat]"
    yield ""
    yield "Chats with those models, in your own `config.toml` only."
    yield ""
    yield from _settings(tables.ChatTable)
    yield "## The home"
    yield ""
    yield from table(("file", "what"), [(f"`{name}`", said) for name, said in FILES.items()])


def _settings(kind: type, **more: str) -> Iterator[str]:
    """The table of a table's settings, as the code says what they mean."""
    meanings = {name: said.meaning for name, said in tables.settings_of(kind)} | more
    return table(("setting", "meaning"), [(f"`{name}`", meaning) for name, meaning in meanings.items()])


def _settings_with_defaults(kind: Callable[[], Any]) -> Iterator[str]:
    defaults, rows = kind(), []
    for name, said in tables.settings_of(type(defaults)):
        default = getattr(defaults, name)
        rows.append((f"`{name}`", "none" if default is None else f"`{_toml(default)}`", said.meaning))
    return table(("setting", "default", "meaning"), rows)


def _policy_rows() -> Iterator[tuple[str, str, str, str]]:
    words = worded(POLICY, {field.name for field in fields(Handling)}, "[policy]")
    schema = json_schemas(HandlingBody, refs="{model}")["HandlingBody"]["properties"]
    for name, said in words.items():
        takes = []
        for branch in schema[name]["anyOf"]:
            if "enum" in branch:
                takes.append(quoted(branch["enum"]))
            elif "$ref" in branch:
                takes.append("`{ auto = […] }`")
            elif branch["type"] == "number":
                takes.append("a number")
        default = getattr(Handling(), name)
        yield f"`{name}`", ", ".join(takes), "none" if default is None else f"`{_toml(default)}`", said


def _toml(value: Any) -> str:
    return json.dumps(value)


# Events -----------------------------------------------------------------------------------------------------

EVENTS = {
    "asked": "An agent asked, or asked again what was withdrawn.",
    "answered": "It has an answer, from a person or from policy; `answer.by` says which.",
    "rejected": "A person or policy said no; `answer.reason` says why.",
    "withdrawn": "The agent stopped waiting; `withdrawn_reason` says why.",
    "delivered": "The agent took the answer, or `delivery_error` says why it did not.",
    "deadline_moved": "Somebody kept waiting; `deadline` and `remaining` are new.",
    "unseen": "No channel could show it and nobody looks at the desk. It still waits; `GET /v1/asks/{id}/showings` "
    "says why.",
}


def event_types() -> dict[str, type[events.Event]]:
    return {kind.type: kind for kind in events.Event.__subclasses__() if kind is not events.Unknown}


def events_page() -> Iterator[str]:
    yield from head(
        "Events",
        "`GET /v1/events` streams them as server-sent events, `handraise watch --json` prints them one a line, and "
        "`Desk().watch()` gives them as records of `handraise.events`. Each event comes once, in order, with the "
        "whole [ask](http.md#ask) as it was then.",
    )
    words = worded(EVENTS, set(event_types()), "events")
    rows = [(f"`{name}`", f"`{event_types()[name].__name__}`", said) for name, said in words.items()]
    yield from table(("`type`", "record", "when"), rows)
    yield "A newer desk may have more of them. Skip a type that you do not know; the SDK gives it as `Unknown`."
    yield ""
    yield "## A frame"
    yield ""
    stream = document()["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    yield from code(stream["example"], "text")
    yield "`id` is the **cursor**: it grows with every event of a desk. Send the last one you have seen as"
    yield "`Last-Event-ID`, or as `?after=`. Then you miss nothing and get nothing twice; 0 is the beginning. Without"
    yield "either you get only new events. The first frame then has an `id` and no `data`: it is the current cursor,"
    yield "which `GET /v1/cursor` returns too. A line `: heartbeat` comes every 15 seconds. Its `id` says up to which"
    yield "event there was nothing else for you."
    yield ""
    yield "Filters: `?session=`, `?run=`, `?worker=`. A token that may only ask has to name its `worker`."
    yield ""
    yield "## Beside asks"
    yield ""
    yield "With `?also=checkpoints,sessions,runs,chats,showings`, or some of these, the stream says when one of them"
    yield "may have changed. Then read it again. The first such frame comes at once and names all that you asked for."
    yield "Several changes may become one frame, and these frames have no `id`."
    yield ""
    yield from _frame_of("Hint")
    yield "With `chats` the stream also has the text of a model's reply while it is written. Append `text` if the block"
    yield "is `offset` long, counted in UTF-16 code units. If you have a part of it already, leave that part out. If"
    yield "something is missing, or you do not know the message or the block yet, read the chat."
    yield ""
    yield from _frame_of("Draft")
    yield "## A cursor that is too old"
    yield ""
    yield "A desk with `keep_days` [deletes](../howto/audit.md#what-is-kept) its oldest events. If a stream resumes"
    yield "from a deleted one, it gets one event that is not about an ask, and then everything that is left:"
    yield ""
    told = document()["components"]["schemas"]["Pruned"]["examples"][0]
    frame = json.dumps(told, separators=(",", ":"))
    yield from code(f"id: {told['through']}\nevent: {told['type']}\ndata: {frame}", "text")
    yield "What you know about asks may then be too old: list them again with `GET /v1/asks`, and continue to read. The"
    yield "`id` is a cursor like any other, so after it you do not get this event again. In Python `Desk().watch()`"
    yield "raises `CursorTooOld` instead, and `handraise watch --json` ends with that error. Handlers (`on_question`)"
    yield "and `handraise watch` on a terminal list the asks again by themselves. A stream that begins with 0 gets this"
    yield "event too; in Python, beginning with 0 raises nothing. Open streams do not get it, and neither do the routes"
    yield "below."
    yield ""
    yield "## The trace of a run"
    yield ""
    yield "`GET /v1/runs/{run}/trace` returns what happened in a run of a workflow, page by page: each event once, with"
    yield "an `id`, the `run_id`, the `step_id` if it is about a step, and its `timestamp`. The asks of its agents are"
    yield "among them, by time. For the next page, send `next` as `after`; with `wait` it returns when there is more."
    yield "Events never change. Questions and permissions disappear when the desk deletes their events."
    yield ""
    yield from table(("`type`", "when"), [(f"`{name}`", said) for name, said in trace.TYPES.items()])
    yield "## Events in other formats"
    yield ""
    yield "`GET /v1/sessions/{session}/events` streams the questions of one session as `question.requested` and"
    yield "`question.resolved`. `GET /event` and `GET /global/event` stream them as an OpenCode server does. See"
    yield "[OpenCode's clients](../howto/opencode-clients.md)."
    yield ""


def _frame_of(name: str) -> Iterator[str]:
    """The example of an event that has no cursor."""
    told = document()["components"]["schemas"][name]["examples"][0]
    yield from code(f"event: {told['type']}\ndata: {json.dumps(told, separators=(',', ':'))}", "text")


# Errors -----------------------------------------------------------------------------------------------------


def error_kinds(kind: type[HandraiseError] = HandraiseError) -> Iterator[type[HandraiseError]]:
    """Every error that a caller can get, each after its parent class. Errors that adapters, transports, chats and
    channels keep to themselves are left out."""
    inner = (
        "handraise.agents.",
        "handraise.transports.",
        "handraise.chat.",
        "handraise.channels.",
        "handraise.client.",
    )
    # Classes of one module keep their order. The order of modules must not depend on who imported them first.
    order = sorted(kind.__subclasses__(), key=lambda below: (below.__module__ != errors.__name__, below.__module__))
    for below in order:
        is_inner = below.__module__.startswith(inner) and below is not http.TooLarge
        if not below.__name__.startswith("_") and not is_inner:
            yield below
            yield from error_kinds(below)


def meanings() -> dict[str, str]:
    """What each class means, from the tree in the docstring of `errors` and from the document of the API."""
    said = dict(re.findall(r"[├└]── (\w+)[ ]*(.*)", errors.__doc__ or ""))
    return said | {
        "SessionNotFound": "no session has that id",
        "Forbidden": "the token's scope is too small, or the Host or Origin is foreign",
        "BadCall": "a call to a channel does not come from the place that it names",
        "BadBody": "the query or the body cannot be read",
        "TooLarge": f"a body of more than {http.MOST_BYTES // 1024 // 1024} MiB",
        "WrongMethod": "the route takes another method; `Allow` names it",
        "RouteNotFound": "no route, or nothing of that name",
        "ExtraMissing": "a package is not installed where the desk runs",
    }


def _facts() -> dict[str, str]:
    """The fields that a refusal has besides `error` and `message`, by code."""
    found = {}
    for schema in document()["components"]["schemas"].values():
        code = refusal_code(schema)
        if code is not None:
            found[code] = quoted(name for name in schema["properties"] if name not in ("error", "message"))
    return found


def errors_page() -> Iterator[str]:
    yield from head(
        "Errors",
        'Over HTTP a refusal is `{"error": code, "message": one sentence, …facts}`. In Python the same code is an '
        "exception with `code`, `message` and `fields`, in the desk and in its clients. At the command line it is the "
        "sentence on standard error, and an [exit code](cli.md#exit-codes).",
    )
    kinds = list(error_kinds())
    said = meanings()
    worded({name: said[name] for name in said}, {kind.__name__ for kind in kinds}, "errors")
    facts = _facts()
    rows = []
    for kind in kinds:
        bare = kind.__new__(kind)
        is_told = kind.code in facts or kind.__module__ != errors.__name__
        rows.append(
            (
                f"`{kind.code}`",
                str(kind.status) if is_told else "",
                f"`{kind.__name__}`" if kind.__module__ == errors.__name__ else "",
                str(cli._exit_code(bare)),
                said[kind.__name__],
                facts.get(kind.code, ""),
            )
        )
    yield from table(("code", "HTTP", "Python", "exit code", "what is the case", "facts"), rows)
    yield "An error without a status never appears over HTTP. An error without a Python name is a plain"
    yield "`HandraiseError` in the SDK. A 503 comes with `Retry-After`; the SDK and the commands try again a few times"
    yield "by themselves."
    yield ""
    yield "## The tree"
    yield ""
    yield from code(inspect.cleandoc((errors.__doc__ or "").partition("\n\n")[2].partition("\n\n`code`")[0]), "text")
    yield "## Examples"
    yield ""
    for schema in document()["components"]["schemas"].values():
        if refusal_code(schema) is not None:
            yield from code(json.dumps(schema["examples"][0], ensure_ascii=False), "json")


# Agents -----------------------------------------------------------------------------------------------------

SEEN = {
    "driven": "our tests run the program itself, with a scripted model, and answer its asks",
    "replayed": "our tests replay what the program sent",
    "read": "known from the program and its documents; not run here",
}
_LOADED = {name: plugins.load("agents", name) for name in plugins.names("agents")}
ADAPTERS = {name: agent for name, agent in _LOADED.items() if hasattr(agent, "versions")}  # but for those of tests


def agents_page() -> Iterator[str]:
    yield from head(
        "Agents",
        "Which program was run with this release of handraise, in which version, and how its asks reach the desk. "
        "Other versions may work; `handraise agents` says if the installed one is newer or older.",
    )
    all_known = [known for agent in ADAPTERS.values() for known in agent.versions]
    words = worded(SEEN, {known.seen for known in all_known}, "what was seen")
    yield from table(("", "meaning"), [(f"**{name}**", said) for name, said in words.items()])
    for name, agent in ADAPTERS.items():
        (page,) = (FOLDER.parent / "agents").glob(f"{name}*.md")
        yield f"## {name}"
        yield ""
        yield f"Started with `handraise start {name}`; more in [its page](../agents/{page.name})."
        yield ""
        rows = [_known_row(known) for known in agent.versions]
        yield from table(("program", "version", "seen", "questions", "permissions", "your own", "note"), rows)
    yield from _modes()
    yield "## The question tool by MCP"
    yield ""
    clients = ", ".join(f"{known.title} {known.version}" for known in all_known if known.mcp)
    yield f"Any client can have [the tool](../howto/question-tool.md#by-mcp). Driven as clients of it: {clients}."
    yield "Each called it, waited longer than one call may take, and got the answer once."
    yield ""


def _modes() -> Iterator[str]:
    yield "## Modes"
    yield ""
    yield "What `--mode` sets for each agent, in its own flags, settings or rules. An agent is not started in a mode"
    yield "that it cannot keep to. Without `--mode` its own configuration decides."
    yield ""
    modes: dict[str, Modes[Any]] = {name: agent.modes for name, agent in ADAPTERS.items()}
    rows = [(f"`{mode}`", means, *(_mode_cell(each, mode) for each in modes.values())) for mode, means in MODES.items()]
    yield from table(("mode", "what", *modes), rows)
    yield "`read-only` and `workspace-write` hold even if somebody says yes: an agent that would ask for more may not"
    yield "ask there. The other modes say what is asked for. In our tests OpenCode, Claude Code, Codex and Qwen Code"
    yield "try to change files inside and outside of the working folder in each of their modes, and all that they ask"
    yield "is allowed."
    yield ""
    for name, each in modes.items():
        if each.others:
            yield f"- **{name}** does not have the others: {each.others}."
    yield ""


def _mode_cell(modes: Modes[Any], mode: Mode) -> str:
    return modes.describe(modes.become[mode]) if mode in modes.become else "no"


def _known_row(known: Known) -> tuple[str, ...]:
    package = f" ({known.package} {known.package_version})" if known.package_version is not None else ""
    cells = (known.questions, known.permissions, known.attached)
    return (known.title, f"{known.version or ''}{package}", known.seen, *(each or "no" for each in cells), known.note)


if __name__ == "__main__":
    main()
