"""Ask several things at once, with asyncio. Needs a desk that runs: handraise serve"""

import asyncio

from handraise import Desk, Rejected


async def deploy(desk: Desk, name: str) -> str:
    # With an id of its own it is safe to run this again: the same ask is joined, and its answer kept.
    try:
        answer = await desk.ask(f"Deploy {name} now?", "yes", "later", id=f"deploy-{name}", timeout=3600)
    except Rejected as no:
        return f"{name}: no, {no.answer.reason or 'without a reason'}"
    who = "nobody was there, so policy" if answer.by_policy else answer.by
    return f"{name}: {who} said {answer.value}"


async def main() -> None:
    async with Desk() as desk:
        for line in await asyncio.gather(deploy(desk, "shop"), deploy(desk, "blog")):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
