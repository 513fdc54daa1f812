"""The desk from another process. `Desk` is what people import, `Client` what channels and adapters take."""

from __future__ import annotations

from handraise.client.client import Client
from handraise.client.connection import addresses, secret
from handraise.client.desk import Desk, Handler

__all__ = ["Client", "Desk", "Handler", "addresses", "secret"]
