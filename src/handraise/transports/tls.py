"""Certificates: those a desk shows, and which one its own machine trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

from handraise.errors import SettingsError

__all__ = ["check", "leaf", "trusting", "trusting_only"]


def check(certificate: Path, *, key: Path) -> None:
    """Raises SettingsError that says which file is wrong, before anything listens with them."""
    for file, option in ((certificate, "--tls-cert"), (key, "--tls-key")):
        try:
            file.open("rb").close()
        except OSError as problem:
            raise SettingsError(
                f"{file} cannot be read ({problem.strerror}); {option} is a file in PEM format that this user may read"
            ) from None
    try:
        leaf(certificate)
    except ValueError:
        raise SettingsError(
            f"{certificate} holds no certificate; --tls-cert is a file in PEM format, with the certificate of this "
            "desk first"
        ) from None
    try:
        # Asked for a passphrase, OpenSSL would stop and wait for somebody to type it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_passphrase)
    except _Encrypted:
        raise SettingsError(
            f"{key} is locked with a passphrase, and nobody is there to type it when the desk starts; "
            f"`openssl pkey -in {key} -out FILE` writes it without one"
        ) from None
    except (ssl.SSLError, ValueError) as problem:
        if getattr(problem, "reason", "") == "KEY_VALUES_MISMATCH":
            raise SettingsError(
                f"{key} is not the key of the certificate in {certificate}; give the two files that were made together"
            ) from None
        raise SettingsError(
            f"{certificate} and {key} cannot be used ({getattr(problem, 'reason', None) or problem}); both are files "
            "in PEM format, the second one with the private key"
        ) from None


def leaf(certificate: Path) -> str:
    """The first certificate of a file, which is the desk's own, in PEM format. Raises ValueError, OSError."""
    text = certificate.read_text(encoding="ascii")
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    if begin < 0 or end < begin:
        raise ValueError("no certificate")
    found = text[begin : end + len(ssl.PEM_FOOTER)] + "\n"
    ssl.PEM_cert_to_DER_cert(found)
    return found


def trusting() -> ssl.SSLContext:
    """As any program of this machine trusts: its authorities, or those in SSL_CERT_FILE or SSL_CERT_DIR."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=True)


def trusting_only(certificate: str) -> ssl.SSLContext:
    """Trust one certificate and nobody who vouches for another. Its names do not matter: it is known by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class _Encrypted(Exception):
    pass


def _no_passphrase() -> str:
    raise _Encrypted
