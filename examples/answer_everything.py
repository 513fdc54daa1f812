"""Answer every question with what is recommended, else the first option; leave permissions to people.

Runs until Ctrl+C. A policy can do as much (`question_policy = "accept-recommended"`); a program can do more: look
things up, ask a model, ask somebody in a chat.
"""

import asyncio
from contextlib import suppress

from handraise import Ask, Desk


def choose(ask: Ask) -> list[list[str]] | None:
    """A list of values for each question, or None, which leaves the ask open for somebody else."""
    if not all(question.options for question in ask.questions):
        return None
    return [
        [next((option for option in question.options if option.recommended), question.options[0]).value]
        for question in ask.questions
    ]


def look(ask: Ask) -> None:
    """Silence never grants a permission, and neither does this."""
    print(f"{ask.id} wants a permission: {ask.title}", flush=True)


async def main() -> None:
    async with Desk() as desk:
        desk.on_question(choose)
        desk.on_permission(look)
        async for event in desk.watch():
            print(f"{event.ask.id} was {event.type}", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
