"""A desk with a certificate of its own: who trusts it, and what is said where the files are wrong (U6, X1)."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from handraise.cli.commands.open import _moved
from handraise.client import Client
from handraise.config import Settings, load
from handraise.errors import DeskUnreachable, SettingsError
from handraise.transports import tls
from tests.helpers.commands import HANDRAISE, Person, running
from tests.helpers.serving import START, Served, listening, path_of, refused, serving, told


class Files(NamedTuple):
    cert: Path
    key: Path


def openssl(*words: str | Path, cwd: Path) -> None:
    subprocess.run(["openssl", *map(str, words)], cwd=cwd, check=True, capture_output=True)


def self_signed(folder: Path, name: str, *, names: str) -> Files:
    files = Files(folder / f"{name}.pem", folder / f"{name}-key.pem")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    about = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
    openssl("req", "-x509", *kind, *about, "-out", files.cert, "-keyout", files.key, cwd=folder)
    return files


def signed(folder: Path, name: str, *, by: Files) -> Files:
    """A certificate that an authority vouches for, with the authority's own behind it."""
    files = Files(folder / f"{name}.pem", folder / f"{name}-key.pem")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", *kind, "-subj", f"/CN={name}", "-keyout", files.key, "-out", f"{name}.csr", cwd=folder)
    authority = ("-CA", by.cert, "-CAkey", by.key, "-CAcreateserial", "-days", "2")
    openssl("x509", "-req", "-in", f"{name}.csr", *authority, "-out", files.cert, cwd=folder)
    files.cert.write_text(files.cert.read_text() + by.cert.read_text())
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def named(folder: Path) -> Files:
    """For a name, and not for the address that the tests call."""
    return self_signed(folder, "named", names="DNS:desk.example")


@pytest.fixture(scope="module")
def local(folder: Path) -> Files:
    """For the address that the tests call."""
    return self_signed(folder, "local", names="IP:127.0.0.1")


@pytest.fixture(scope="module")
def chained(folder: Path) -> list[Files]:
    """Two that the same authority vouches for."""
    authority = self_signed(folder, "authority", names="DNS:authority.example")
    return [signed(folder, name, by=authority) for name in ("first", "second")]


@pytest.fixture
async def desk(tmp_path: Path, named: Files) -> AsyncIterator[Served]:
    async with serving(tmp_path / "home", tls_cert=named.cert, tls_key=named.key) as desk:
        yield desk


async def test_everything_goes_over_tls(desk: Served) -> None:
    assert desk.url.startswith("https://127.0.0.1:")
    await told(desk.http.get("/healthz"), 200)
    async with listening(desk.http) as listener:
        await desk.ask(id="q1")
        assert json.loads((await listener.frame()).data)["ask"]["id"] == "q1"
        await desk.answer("q1", "SQLite")
        assert json.loads((await listener.frame()).data)["type"] == "answered"
    with pytest.raises(httpx2.TransportError):
        async with httpx2.AsyncClient(trust_env=False, verify=False) as plain:
            await plain.get(desk.url.replace("https:", "http:") + "/healthz")


async def test_links_are_https_and_the_cookie_is_for_https_alone(desk: Served) -> None:
    assert desk.running.sign_in_url.startswith(f"{desk.url}/signin/")
    link = (await told(desk.http.post("/v1/signin"), 201))["url"]
    assert link.startswith(f"{desk.url}/signin/")
    browser = await desk.client()
    done = await browser.post(link, headers={"Origin": desk.url})
    assert done.status_code == 200
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(done.headers["set-cookie"].split("; "))
    [secret] = re.findall(r'data-secret="([\w-]+)"', done.text)
    await told(browser.get("/v1/asks", headers={"Origin": desk.url, "X-Handraise-Session": secret}), 200)
    await desk.ask(id="q1")
    answer_link = (await told(desk.http.post(path_of("q1", "link")), 201))["url"]
    assert answer_link.startswith(f"{desk.url}/a/")


async def test_a_page_without_tls_is_another_origin(desk: Served) -> None:
    foreign = {"Origin": desk.url.replace("https:", "http:")}
    await refused(desk.http.get("/v1/asks", headers=foreign), 403, "forbidden")


async def test_without_tls_the_cookie_works_without_tls(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        done = await (await desk.client()).post(desk.running.sign_in_url)
        assert "Secure" not in done.headers["set-cookie"].split("; ")


# Trust ------------------------------------------------------------------------------------------------------


async def test_the_desk_of_this_home_is_known_by_its_own_certificate(desk: Served, named: Files) -> None:
    written = json.loads(desk.settings.desk_file.read_text())
    assert written["url"] == desk.url
    assert written["certificate"] == tls.leaf(named.cert)
    assert stat.S_IMODE(desk.settings.desk_file.stat().st_mode) == 0o600
    async with Client(settings=Settings(home=desk.settings.home)) as client:
        assert (await client.call("GET", "/v1/tokens"))["tokens"]
        asked = asyncio.ensure_future(anext(client.events(after=0)))
        await desk.ask(id="q1")
        assert (await asyncio.wait_for(asked, START)).type == "asked"


async def test_a_certificate_that_was_renewed_on_the_disk_does_not_shut_anybody_out(
    tmp_path: Path, named: Files, local: Files
) -> None:
    cert, key = tmp_path / "desk.pem", tmp_path / "desk-key.pem"
    cert.write_text(named.cert.read_text())
    key.write_text(named.key.read_text())
    async with serving(tmp_path / "home", tls_cert=cert, tls_key=key) as desk:
        cert.write_text(local.cert.read_text())
        key.write_text(local.key.read_text())
        async with Client(settings=Settings(home=desk.settings.home)) as client:
            assert await client.call("GET", "/v1/tokens")


async def test_only_the_very_certificate_counts_and_not_who_vouches_for_it(
    tmp_path: Path, chained: list[Files]
) -> None:
    first, second = chained
    async with serving(tmp_path / "one", tls_cert=first.cert, tls_key=first.key) as desk:
        async with Client(settings=Settings(home=desk.settings.home)) as client:
            assert await client.call("GET", "/v1/tokens")
        async with serving(tmp_path / "two", tls_cert=second.cert, tls_key=second.key) as other:
            written = json.loads(desk.settings.desk_file.read_text())
            desk.settings.desk_file.write_text(json.dumps({**written, "url": other.url}))
            async with Client(settings=Settings(home=desk.settings.home)) as client:
                with pytest.raises(DeskUnreachable):
                    await client.call("GET", "/v1/tokens")


async def test_a_desk_elsewhere_needs_an_authority_that_the_machine_trusts(
    tmp_path: Path, named: Files, local: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    async with (
        serving(tmp_path / "one", tls_cert=local.cert, tls_key=local.key) as right,
        serving(tmp_path / "two", tls_cert=named.cert, tls_key=named.key) as misnamed,
    ):

        async def call(desk: Served) -> Any:
            elsewhere = Settings(home=tmp_path / "none", url=desk.url, token=desk.token)
            async with Client(settings=elsewhere) as client:
                return await client.call("GET", "/v1/tokens")

        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(DeskUnreachable, match="is not trusted here; set SSL_CERT_FILE"):
            await call(right)
        monkeypatch.setenv("SSL_CERT_FILE", str(local.cert))
        assert await call(right)
        monkeypatch.setenv("SSL_CERT_FILE", str(named.cert))
        with pytest.raises(DeskUnreachable, match="call the desk by a name that it is for"):
            await call(misnamed)


# Files that cannot be used ----------------------------------------------------------------------------------


def wrong_files(folder: Path, named: Files, local: Files) -> dict[str, tuple[Path, Path, str]]:
    text, locked = folder / "text.pem", folder / "locked-key.pem"
    text.write_text("no certificate\n")
    garbled = folder / "garbled.pem"
    garbled.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    openssl("pkey", "-in", named.key, "-aes256", "-passout", "pass:hello", "-out", locked, cwd=folder)
    nowhere = folder / "nowhere.pem"
    return {
        "no certificate there": (nowhere, named.key, f"{nowhere} cannot be read (No such file or directory)"),
        "no key there": (named.cert, nowhere, f"{nowhere} cannot be read (No such file or directory)"),
        "a folder": (folder, named.key, f"{folder} cannot be read (Is a directory)"),
        "text": (text, named.key, f"{text} holds no certificate"),
        "swapped": (named.key, named.cert, f"{named.key} holds no certificate"),
        "garbled": (garbled, named.key, f"{garbled} and {named.key} cannot be used"),
        "no key in it": (named.cert, text, f"{named.cert} and {text} cannot be used"),
        "of another": (named.cert, local.key, f"{local.key} is not the key of the certificate in {named.cert}"),
        "locked": (named.cert, locked, f"{locked} is locked with a passphrase"),
    }


def test_files_that_cannot_be_used_are_named_in_one_sentence(folder: Path, named: Files, local: Files) -> None:
    tls.check(named.cert, key=named.key)
    for case, (cert, key, sentence) in wrong_files(folder, named, local).items():
        with pytest.raises(SettingsError) as refusal:
            tls.check(cert, key=key)
        assert str(refusal.value).startswith(sentence), case
        assert "\n" not in str(refusal.value) and ";" in str(refusal.value), case


async def test_wrong_files_end_the_command_before_anything_starts(tmp_path: Path, named: Files, local: Files) -> None:
    person = Person(tmp_path)
    done = await person.run("serve", "--port", "0", "--tls-cert", str(named.cert), "--tls-key", str(local.key))
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"handraise: {local.key} is not the key of the certificate in {named.cert}; give the two files that were made "
        "together\n"
    )
    assert not person.home.exists()
    half = await person.run("serve", "--port", "0", "--tls-key", str(local.key))
    assert (half.code, half.out) == (2, "") and "give both --tls-cert and --tls-key" in half.err


def test_settings_name_both_files_or_none(tmp_path: Path) -> None:
    def written(text: str) -> Settings:
        config = tmp_path / "config" / "handraise" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)
        environ = {"HANDRAISE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        return load(environ, cwd=tmp_path)

    settings = written('[desk]\ntls_cert = "desk.pem"\ntls_key = "/srv/key.pem"\n')
    assert settings.tls_cert == tmp_path / "config" / "handraise" / "desk.pem"
    assert settings.tls_key == Path("/srv/key.pem")
    assert written("[desk]\n").tls_cert is None
    for half in ('tls_cert = "desk.pem"', 'tls_key = "desk.pem"', "tls_cert = 1\ntls_key = 2"):
        with pytest.raises(SettingsError, match="give both or none"):
            written(f"[desk]\n{half}\n")


def test_a_project_cannot_choose_the_certificate_of_your_desk(tmp_path: Path) -> None:
    (tmp_path / "handraise.toml").write_text('[desk]\ntls_cert = "desk.pem"\ntls_key = "key.pem"\n')
    environ = {"HANDRAISE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with pytest.raises(SettingsError, match=r"belongs in your own config\.toml"):
        load(environ, cwd=tmp_path)


# The commands -----------------------------------------------------------------------------------------------


async def test_the_commands_of_this_machine_find_and_trust_the_desk(tmp_path: Path, named: Files) -> None:
    person = Person(tmp_path)
    options = ("--port", "0", "--tls-cert", named.cert, "--tls-key", named.key, "--json")
    async with running(*HANDRAISE, "serve", *options, env=person.env, cwd=tmp_path) as serve:
        assert serve.stdout is not None
        ready = json.loads(await asyncio.wait_for(serve.stdout.readline(), START))
        assert ready["url"].startswith("https://") and ready["sign_in_url"].startswith(ready["url"])
        assert (await person.run("ask", "Deploy?", "yes", "no", "--timeout", "0.1")).code == 3
        assert "Deploy?" in (await person.run("asks")).out
        link = await person.run("open", "--print", "--at", "desk.example")
        port = ready["url"].rpartition(":")[2]
        assert link.out.startswith(f"https://desk.example:{port}/signin/")


@pytest.mark.parametrize(
    ("at", "moved"),
    [
        ("desk.example", "https://desk.example:4263/signin/x"),
        ("desk.example:443", "https://desk.example:443/signin/x"),
        ("[::1]", "https://[::1]:4263/signin/x"),
        ("https://desk.example", "https://desk.example/signin/x"),
        ("http://desk.example:8080/", "http://desk.example:8080/signin/x"),
    ],
)
def test_a_sign_in_link_can_name_the_desk_as_the_browser_reaches_it(at: str, moved: str) -> None:
    assert _moved("https://127.0.0.1:4263/signin/x", at) == moved


@pytest.mark.parametrize("at", ["", "a b", "ftp://desk.example", "desk.example:port"])
def test_a_name_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(SettingsError, match="--at"):
        _moved("https://127.0.0.1:4263/signin/x", at)
