"""Pictures of the web app for the documentation, taken by the tests that bring about what they show.

A test without HANDRAISE_WRITE_PICTURES=1 only holds that what the picture shows can still be seen. For the same picture
each time take the fixture `fake_clock`: the desk and the browser then begin at the same instant of 2026.
"""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Locator, expect

from tests.browser.people import Tab

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WRITE = "HANDRAISE_WRITE_PICTURES"


async def picture(tab: Tab, name: str, *, shows: Locator, only: Locator | None = None) -> None:
    """Take docs/pictures/NAME.png of what is in the window, or of `only` one element, once `shows` is visible."""
    await expect(shows.first).to_be_visible()
    file = FOLDER / f"{name}.png"
    if os.environ.get(WRITE) != "1":
        assert file.exists(), f"there is no {file.name} yet; run this test with {WRITE}=1"
        return
    FOLDER.mkdir(exist_ok=True)
    await tab.page.evaluate("document.fonts.ready.then(() => undefined)")
    if only is not None:
        await only.screenshot(path=file, animations="disabled", caret="hide", scale="css")
    else:
        await tab.page.screenshot(path=file, animations="disabled", caret="hide", scale="css")
