"""`handraise serve`: run the desk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from handraise.cli.calling import settings_here
from handraise.cli.commands import Command
from handraise.errors import SettingsError

__all__ = ["plugin"]

EXAMPLES = """\b
Examples:
  handraise serve
  handraise serve --port 5000
  HANDRAISE_HOME=/srv/desk handraise serve
  handraise serve --host 0.0.0.0 --allowed-host desk.example.org
  handraise serve --tls-cert desk.pem --tls-key desk-key.pem
  HANDRAISE_DATABASE=postgresql://desk@db.example.org/desk handraise serve"""


def serve(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 4263,
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback unless you say so.")] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name this desk answers to besides its address; repeatable."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate, in PEM format, to serve https with.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of that certificate, in PEM format.")
    ] = None,
    no_worker: Annotated[
        bool,
        typer.Option(
            "--no-worker",
            help="Only the desk; sessions are run by workers elsewhere.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as one line of JSON.")] = False,
) -> None:
    """Run the desk until Ctrl+C."""
    from handraise.cli.running import run_until_ended

    settings = settings_here()
    if (tls_cert is None) != (tls_key is None):
        raise SettingsError("a certificate and its key come together; give both --tls-cert and --tls-key")
    if tls_cert is not None and tls_key is not None:
        settings = replace(settings, tls_cert=tls_cert.absolute(), tls_key=tls_key.absolute())
    run_until_ended(
        settings,
        host=host or settings.host,
        port=port,
        allowed_hosts=tuple(allowed_host or ()),
        as_json=as_json,
        has_worker=not no_worker,
    )


plugin = Command(serve, examples=EXAMPLES, group="desk")
