"""`handraise trust`: look at what a project's files would make happen, and let them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handraise.cli.commands import Command
from handraise.cli.printing import print_json
from handraise.errors import SettingsError
from handraise.text.inert import inert

if TYPE_CHECKING:
    from handraise.trust import Trust

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise trust                 what the project here would do; then you are asked once for all of it
  handraise trust ~/shop
  handraise trust --list          every project that you trust, and which parts of it
  handraise trust --forget        the project here is a stranger's again

\b
What a project's handraise.toml and .handraise/workflows forbid counts at once. The agents they
start, the answers they give, what they allow and the Python they run count after this, each only
until it changes, with the programs and files that belong to it. It needs a terminal of your own:
there is no option that says yes.
Exit codes: 0 all of it is trusted, 1 not all of it, 2 usage."""

FAILED = 1


def trust(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A folder of the project; this one, unless said.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what is trusted, in every project.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Trust nothing of the project any more.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: JSON, one object a line.")] = False,
) -> None:
    """Look at what a project's files would do, and let them."""
    from handraise.config import load
    from handraise.trust import Trust

    place = (folder or Path.cwd()).expanduser().absolute()
    if not place.is_dir():
        raise SettingsError(f"there is no folder {str(place)!r}")
    if as_json and not listed:
        raise SettingsError("--json goes with --list: only a person can trust a project")
    if listed:
        _list(Trust(load(cwd=Path("/")).trust_file), as_json=as_json)
    elif forget:
        _forget(place, trust=Trust(load(cwd=Path("/")).trust_file))
    else:
        _look(place)


def _look(folder: Path) -> None:
    from handraise.cli.trusting import check_person, offer, show
    from handraise.config import load
    from handraise.trust import Trust
    from handraise.trust.project import look, parts_here

    settings = load(cwd=folder)
    trust = Trust(settings.trust_file)
    parts, problems = parts_here(folder, settings)
    for problem in problems:
        print(inert(f"cannot be read: {problem}", keep=""))
    if not parts:
        print("Nothing here has to be trusted: no file of a project starts, answers, allows or runs anything.")
        return
    seen = [look(part, trust=trust) for part in parts]
    show(seen)
    if all(each.state == "trusted" for each in seen):
        print("All of it is trusted, until it changes.")
        return
    check_person()
    if not offer(seen, trust=trust):
        raise typer.Exit(FAILED)
    print("All of it is trusted, until it changes.")


def _list(trust: Trust, *, as_json: bool) -> None:
    projects = trust.projects()
    if as_json:
        for project, parts in projects.items():
            print_json({"project": project, "parts": sorted(parts)})
    elif not projects:
        print("No project is trusted.")
    else:
        for project, parts in projects.items():
            print(inert(f"{project}: {', '.join(sorted(parts))}", keep=""))


def _forget(folder: Path, *, trust: Trust) -> None:
    """The nearest project above that something of was trusted."""
    forgotten = trust.forget_around(folder)
    if forgotten is None:
        print("Nothing here was trusted.")
        return
    project, names = forgotten
    print(inert(f"not trusted any more: {', '.join(names)} of {project}", keep=""))
    print("A desk that runs keeps the agents and the policy that it was started with.")


plugin = Command(trust, examples=EXAMPLES, group="set-up")
