"""Linear as a place where people answer, and where they give agents work."""

from __future__ import annotations

from handraise.channels import ChannelSettings
from handraise.channels.linear.channel import Linear
from handraise.channels.linear.settings import read_settings

__all__ = ["Linear", "plugin"]


def plugin(settings: ChannelSettings) -> Linear:
    """Raises SettingsError."""
    return Linear(settings, read_settings(settings))
