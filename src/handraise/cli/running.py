"""Running a desk in the foreground, for the commands that do."""

from __future__ import annotations

import asyncio
import logging
import sys

from handraise.app import bind, run_desk
from handraise.config import Settings

__all__ = ["run_loop", "run_until_ended"]


def run_loop(main: object) -> None:
    """`asyncio.run` on the fast loop where there is one."""
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)  # type: ignore[arg-type]


def run_until_ended(settings: Settings, *, host: str, port: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    listener = bind(host, port)

    async def serve() -> None:
        async with run_desk(settings, listener=listener) as desk:
            print(f"handraise is at your desk: {desk.url}", flush=True)
            print(f"  sign in with a browser (once, within 15 minutes): {desk.sign_in_url}", flush=True)
            print("  answer from another terminal: handraise watch", flush=True)
            await desk.ended()
        print("handraise has left; what was asked is kept", flush=True)

    run_loop(serve())
