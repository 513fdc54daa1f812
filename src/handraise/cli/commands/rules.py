"""`handraise rules`: what decides about permissions before a person is asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handraise.cli.calling import Json, Url, call_or_open, person
from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.errors import SettingsError
from handraise.text.inert import inert
from handraise.wire.plain import to_plain
from handraise.wire.rules import RuleBody, RuleTestBody

if TYPE_CHECKING:
    from handraise.broker import Broker
    from handraise.client import Client
    from handraise.tables.tokens import Tokens

__all__ = ["plugin"]

LIST = """\b
Examples:
  handraise rules                         those that hold in this folder, the first one first
  handraise rules --cwd ~/shop --json
  handraise rules test --tool shell --arg command="git push"
  handraise rules check"""
TEST = """\b
Examples:
  handraise rules test --tool shell --arg command="git push"
  handraise rules test --agent codex --tool edit --arg path=src/app.py --cwd ~/shop

\b
Exit codes: 0 allow, 3 a person or a program decides, 4 reject."""
CHECK = """\b
Examples:
  handraise rules check && git commit     exit code 1 where a rule can never match
  handraise rules check --strict          and where one allows more than it shows"""
ADD = """\b
Examples:
  handraise rules add --tool shell --match command="git status*" --action allow
  handraise rules add --tool edit --match path="*.env" --action reject --message "Ask Ana for secrets" --first
  handraise rules add --tool shell --match command="terraform *" --action delegate --to /usr/local/bin/decide"""
REMOVE = """\b
Example:
  handraise rules remove 1f3a9c2e"""
FAILED, WAITS, REJECTED = 1, 3, 4

Cwd = Annotated[Path | None, typer.Option(help="The folder an agent works in; this one, unless said otherwise.")]


class Action(StrEnum):  # typer takes no literals here
    allow = "allow"
    reject = "reject"
    ask = "ask"
    delegate = "delegate"


class Context(StrEnum):
    thread = "thread"
    subagent = "subagent"


rules = typer.Typer(
    help="Show, test and change the rules for permissions.",
    epilog=LIST,
    invoke_without_command=True,
    rich_markup_mode=None,
)


@rules.callback()
def list_(context: typer.Context, cwd: Cwd = None, as_json: Json = False, url: Url = None) -> None:
    """Show, test and change the rules for permissions."""
    if context.invoked_subcommand is None:
        found = _listed(cwd, url=url)
        if as_json:
            print_json(found)
        else:
            _show(found)


@rules.command("test", epilog=TEST)
def try_out(
    tool: Annotated[str, typer.Option(help="Its common name, or the agent's own.")],
    arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An argument of the call; repeatable.")
    ] = None,
    agent: Annotated[str, typer.Option(help="Which agent makes the call.")] = "any",
    context: Annotated[Context, typer.Option(help="Whether a subagent makes it.")] = Context.thread,
    cwd: Cwd = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Say which rule would decide a call, and why. Nothing is asked and nothing is run."""
    arguments = _pairs(arg or (), option="--arg")
    folder = _folder(cwd)

    async def over_http(client: Client) -> dict[str, Any]:
        body: dict[str, Any] = {
            "tool": tool,
            "arguments": arguments,
            "agent": agent,
            "cwd": folder,
            "context": context.value,
        }
        return dict(to_plain(await client.rules.test(RuleTestBody(**body))))

    async def on_store(broker: Broker, tokens: Tokens) -> dict[str, Any]:
        from handraise.rules.book import call_of

        subagent = context is Context.subagent
        return await broker.rules.tested(call_of(tool, arguments, agent=agent, cwd=folder, subagent=subagent))

    told = call_or_open(over_http, on_store, url=url, quietly=True)
    if as_json:
        print_json(told)
    else:
        _explain(told)
    if told["action"] != "allow":
        raise typer.Exit(REJECTED if told["action"] == "reject" else WAITS)


@rules.command(epilog=CHECK)
def check(
    cwd: Cwd = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 for warnings too.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Find rules that can never match, and those that allow more than they show."""
    found = _listed(cwd, url=url)
    useless = [rule for rule in found["rules"] if "never" in rule]
    wide = [rule for rule in found["rules"] if "warnings" in rule]
    if as_json:
        print_json({"problems": found["problems"], "never": useless, "warnings": wide})
    else:
        for problem in found["problems"]:
            print(inert(problem, keep=""))
        for rule in useless:
            print(inert(f"{rule['source']}: {_line(rule)}: can never match, {rule['never']}", keep=""))
        for rule in wide:
            for warning in rule["warnings"]:
                print(inert(f"{rule['source']}: warning, {warning}", keep=""))
        if not useless and not found["problems"]:
            print(f"{len(found['rules'])} rules, and each can decide something")
    if useless or found["problems"] or (strict and wide):
        raise typer.Exit(FAILED)


@rules.command(epilog=ADD)
def add(
    tool: Annotated[str, typer.Option(help="A pattern for the tool: shell, edit, read, fetch, mcp, *, …")],
    action: Annotated[Action, typer.Option(help="What becomes of it.", show_default=False)],
    match: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATTERN", help="An argument has to look like this; repeatable, any of one name."),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only for this agent.")] = None,
    context: Annotated[Context | None, typer.Option(help="Only for the main thread, or for subagents.")] = None,
    message: Annotated[str | None, typer.Option(help="What a refused agent is told.")] = None,
    to: Annotated[str | None, typer.Option(help="The program that decides.")] = None,
    first: Annotated[bool, typer.Option("--first", help="Before the others kept at the desk.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Keep a rule at the desk, for all projects and every agent."""
    body: dict[str, Any] = {"tool": tool, "action": action.value}
    body |= {"matches": _patterns(match)} if match else {}
    body |= {name: value for name, value in (("agent", agent), ("message", message)) if value is not None}
    body |= {"context": context.value} if context is not None else {}
    body |= {"to": [to]} if to is not None else {}

    async def over_http(client: Client) -> dict[str, Any]:
        return dict(to_plain(await client.rules.add(RuleBody(**body, first=first))))

    async def on_store(broker: Broker, tokens: Tokens) -> dict[str, Any]:
        return (await broker.rules.add(body, at=broker.clock.now(), by=person(), first=first)).told()

    told = call_or_open(over_http, on_store, url=url)
    if as_json:
        print_json(told)
    else:
        print(inert(f"{told['id']}  {_line(told)}", keep=""))


@rules.command(epilog=REMOVE)
def remove(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `handraise rules` shows it.")], url: Url = None
) -> None:
    """Forget a rule that is kept at the desk."""

    async def over_http(client: Client) -> dict[str, Any]:
        return dict(to_plain(await client.rules.remove(id)))

    async def on_store(broker: Broker, tokens: Tokens) -> dict[str, Any]:
        return (await broker.rules.remove(id)).told()

    print(inert(f"removed {_line(call_or_open(over_http, on_store, url=url))}", keep=""))


def _listed(cwd: Path | None, *, url: str | None) -> dict[str, Any]:
    folder = _folder(cwd)

    async def over_http(client: Client) -> dict[str, Any]:
        return dict(to_plain(await client.rules.list(cwd=folder)))

    async def on_store(broker: Broker, tokens: Tokens) -> dict[str, Any]:
        from handraise.asks import Origin

        return await broker.rules.listed(Origin(agent="any", session="any", cwd=folder))

    return call_or_open(over_http, on_store, url=url, quietly=True)


def _folder(cwd: Path | None) -> str:
    return os.path.abspath(cwd or ".")  # noqa: PTH100 - without following links, as an agent would say it


def _show(found: dict[str, Any]) -> None:
    for rule in found["rules"]:
        never = "  (can never match)" if "never" in rule else ""
        print(inert(f"{rule['source']}  {_line(rule)}{never}", keep=""))
    if not found["rules"]:
        print("No rules: a person decides about every permission.")
    for rule in found["untrusted"]:
        print(inert(f"{rule['source']}  {_line(rule)}  (not trusted)", keep=""))
    for problem in found["problems"]:
        print(inert(problem, keep=""), file=sys.stderr)


def _explain(told: dict[str, Any]) -> None:
    rule = told["rule"]
    by = f"by {rule['source']}: {_line(rule)}" if rule is not None else "no rule decides it, so a person does"
    print(inert(f"{told['action']}, {by}", keep=""))
    for why in told["why"]:
        print(inert(f"  {why}", keep=""))
    for problem in told["problems"]:
        print(inert(problem, keep=""), file=sys.stderr)


def _line(rule: dict[str, Any]) -> str:
    about = [rule["tool"]]
    about += [f"agent {rule['agent']}"] if "agent" in rule else []
    about += [rule["context"]] if "context" in rule else []
    about += [f"session {rule['session']}"] if "session" in rule else []
    for name, condition in rule.get("matches", {}).items():
        listed = condition if isinstance(condition, list) else [condition]
        about.append(f"{name} = {' or '.join(repr(each) for each in listed) or '[]'}")
    to = f" {' '.join(rule['to'])}" if "to" in rule else ""
    return f"{', '.join(about)}: {rule['action']}{to}"


def _pairs(given: Sequence[str], *, option: str) -> dict[str, Any]:
    """`NAME=VALUE`; `true` and `false` are what they say."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise SettingsError(f'{option} {pair!r}: write a name and a value, as in {option} command="git push"')
        found[name] = value == "true" if value in ("true", "false") else value
    return found


def _patterns(given: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for pair in given:
        ((name, value),) = _pairs([pair], option="--match").items()
        found.setdefault(name, []).append(value)
    return found


plugin = Command(rules, group="answer")
