"""What each mode becomes for Amp: its setting `amp.dangerouslyAllowAll`."""

from __future__ import annotations

import json

from handraise.agents._modes import Modes

__all__ = ["MODES"]

MODES = Modes(
    agent="amp",
    others="its commands cannot be kept from changing things",
    describe=lambda allows: f"`amp.dangerouslyAllowAll = {json.dumps(allows)}`",
    become={"default": False, "bypass": True, "full-access": True},
)
