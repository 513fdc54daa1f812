"""Fakes and contract suites."""
