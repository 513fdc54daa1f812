"""The OpenAPI document: shapes from the records themselves, routes written down beside them."""

from __future__ import annotations

from typing import Any


def document() -> dict[str, Any]:
    return {}
