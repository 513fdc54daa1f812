"""`handraise` alone on a terminal: what waits, and what to type next."""

from __future__ import annotations

import shutil

from handraise.cli.calling import call
from handraise.cli.printing import NARROW, command
from handraise.errors import DeskUnreachable

__all__ = ["overview"]


def overview() -> None:
    """Raises what `handraise asks` does, but where no desk runs it says how to start one."""
    from handraise.cli.commands.asks import list_asks

    try:
        call(lambda client: list_asks(client, "asked", {}), url=None)
    except DeskUnreachable:
        print("No desk runs here. A desk is where the questions of your coding agents wait for you.\n")
        _tell(("demo", "see it work, with agents that are played"), ("serve", "run the desk"))
    else:
        print()
        _tell(
            ("watch", "answer what comes"),
            ("start AGENT PROMPT", "start an agent"),
            ("install AGENT", "attach one that you start yourself"),
        )


def _tell(*steps: tuple[str, str]) -> None:
    """Each command under the other, with what it does."""
    lines = [(f"{command()} {words}", about) for words, about in (*steps, ("--help", "every command"))]
    widest = max(len(words) for words, _ in lines)
    is_narrow = shutil.get_terminal_size().columns < NARROW
    for words, about in lines:
        print(f"  {words}\n      {about}" if is_narrow else f"  {words:<{widest}}  {about}")
