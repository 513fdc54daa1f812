"""The pages that need no script: signing in, and the form behind an answer link. A GET of them changes nothing.

Pages are built from elements, which escape every text they get. Text that an agent wrote goes through `_text` as well,
which makes hidden characters visible. The web app is not here: it is static files, see `server/web.py`.
"""

from __future__ import annotations

from handraise.server.pages._page import words_for
from handraise.server.pages.links import Pages
from handraise.server.pages.sign_in import sign_in_over_page, sign_in_page, signed_in_page

__all__ = ["Pages", "sign_in_over_page", "sign_in_page", "signed_in_page", "words_for"]
