"""Looks for barriers in a page, by the rules of axe. Runs under the page's own content security policy."""

from __future__ import annotations

from typing import Any

from tests.browser.install import axe
from tests.browser.people import Tab

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """async ([rules, within]) => {
  const found = await axe.run(within ?? document, {
    runOnly: { type: 'tag', values: rules }, resultTypes: ['violations'], preload: false,
  });
  return found.violations.map(({ id, help, nodes }) => [id, help, nodes.map(({ target }) => target.join(' '))]);
}"""


async def findings(tab: Tab, *, within: str | None = None) -> list[str]:
    """One sentence for each rule that is broken and the elements that break it; empty where all is well.

    `within` is a CSS selector of the part to look at."""
    if not await tab.page.evaluate("'axe' in globalThis"):
        await tab.page.evaluate(axe())
    found: list[Any] = await tab.page.evaluate(_RUN, [RULES, within])
    return [f"{id}: {help}: {', '.join(places)}" for id, help, places in found]
