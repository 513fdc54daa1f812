"""What an agent's own machine adds to an ask before it is asked: its name, and where files really are."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace

from handraise.asks import Ask, Permission

__all__ = ["on_this_machine", "resolve"]

MOST_PATHS = 200  # of one permission; nobody reads a longer list, and each is several looks at the disk


def on_this_machine(ask: Ask) -> Ask:
    """The ask with the name of this machine in its origin, unless it names one. Joining an ask does not compare it."""
    if ask.origin.machine is not None:
        return ask
    return replace(ask, origin=replace(ask.origin, machine=socket.gethostname()))


async def resolve(ask: Ask) -> Ask:
    """The ask of an agent on this machine, with the real places of its files, links followed. What was looked up
    before is left as it is.

    No place is added where it cannot be known: then no rule for paths allows it.
    """
    ask = on_this_machine(ask)
    permission = ask.permission
    if permission is None or not permission.files or permission.resolved is not None:
        return ask
    cwd = permission.cwd or ask.origin.cwd
    if len(permission.files) > MOST_PATHS or (cwd is None and not all(map(os.path.isabs, permission.files))):
        return ask
    # In a thread: a disk may be slow, and other asks wait on the loop.
    return replace(ask, permission=await asyncio.to_thread(_looked_up, permission, cwd))


def _looked_up(permission: Permission, cwd: str | None) -> Permission:
    try:
        # Joined as written: `link/..` is where the link leads, and not the folder that it is in.
        real = tuple(os.path.realpath(os.path.join(cwd or "/", path)) for path in permission.files)  # noqa: PTH118
        return replace(permission, resolved=real, resolved_cwd=None if cwd is None else os.path.realpath(cwd))
    except (OSError, ValueError):
        return permission
