"""Tests of the web app in a real browser. `people.py` has what they are written with."""
