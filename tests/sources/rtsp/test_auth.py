"""The answers to challenges: the RFCs' own examples, and variants from cameras."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from pipelines.credentials import Credentials
from pipelines.sources.rtsp.auth import MAX_CHALLENGES, Challenge, Login, challenges

WHO = Credentials("Mufasa", "Circle of Life")
SHA = 'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=SHA-256, nonce="n1", opaque="o"'
MD5 = 'Digest realm="r", nonce="n2", qop="auth", algorithm=MD5'
OLD = 'Digest realm="r", nonce="n3"'
BASIC = 'Basic realm="r"'


def _login(*headers: str, who: Credentials | None = WHO, cnonce: str = "c") -> Login:
    login = Login(who, lambda: cnonce)
    assert login.header("OPTIONS", "rtsp://h/") is None
    assert login.refused(headers)
    return login


def _fields(header: str | None) -> dict[str, str]:
    assert header is not None
    assert header.startswith("Digest ")
    (challenge,) = challenges([header])
    return challenge.values


@pytest.mark.parametrize(
    ("challenge", "password", "cnonce", "response"),
    [
        pytest.param(  # the example of RFC 2069, 2.4, with the response of its erratum 749
            'Digest realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", '
            'opaque="5ccc069c403ebaf9f0171e9517f40e41"',
            "CircleOfLife",
            "",
            "1949323746fe6a43ef61f9606e7febea",
            id="RFC 2069",
        ),
        pytest.param(  # RFC 2617, 3.5
            'Digest realm="testrealm@host.com", qop="auth,auth-int", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", '
            'opaque="5ccc069c403ebaf9f0171e9517f40e41"',
            "Circle Of Life",
            "0a4f113b",
            "6629fae49393a05397450978507c4ef1",
            id="RFC 2617",
        ),
        pytest.param(  # RFC 7616, 3.9.1
            'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=MD5, '
            'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"',
            "Circle of Life",
            "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
            "8ca523f5e9506fed4657c9700eebdbec",
            id="MD5",
        ),
        pytest.param(
            'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=SHA-256, '
            'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"',
            "Circle of Life",
            "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
            "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
            id="SHA-256",
        ),
    ],
)
def test_the_examples_of_the_rfcs(challenge: str, password: str, cnonce: str, response: str) -> None:
    login = _login(challenge, who=Credentials("Mufasa", password), cnonce=cnonce)
    fields = _fields(login.header("GET", "/dir/index.html"))
    assert fields["response"] == response
    assert fields["opaque"] == challenges([challenge])[0].values["opaque"]
    assert fields["username"] == "Mufasa"
    assert ("nc" in fields) == ("qop" in challenge)


@pytest.mark.parametrize(
    ("headers", "nonce"),
    [
        ([MD5, SHA, BASIC], "n1"),
        ([BASIC, OLD], "n3"),
        ([f"{BASIC}, {MD5}, {SHA}"], "n1"),
        ([f"{SHA}, {BASIC}"], "n1"),
        ([MD5, OLD], "n2"),
        (['Digest realm="r", nonce="x", algorithm=SHA-512-256, qop="auth"', OLD], "n3"),
        (['Digest realm="r", nonce="x", algorithm=SHA-256, qop="auth-int"', OLD], "n3"),
        (['Digest realm="r", algorithm=SHA-256', OLD], "n3"),
        (["Negotiate abc==", 'Bearer realm="x"', OLD], "n3"),
    ],
)
def test_the_strongest_that_is_understood(headers: list[str], nonce: str) -> None:
    assert _fields(_login(*headers).header("PLAY", "rtsp://h/"))["nonce"] == nonce


@pytest.mark.parametrize("headers", [[BASIC], [BASIC, 'Digest realm="r", nonce="x", qop="auth-int"'], ["BASIC"]])
def test_basic(headers: list[str]) -> None:
    header = _login(*headers, who=Credentials("u", "pä:ß")).header("PLAY", "rtsp://h/")
    assert header == "Basic " + base64.b64encode("u:pä:ß".encode()).decode()


@pytest.mark.parametrize("headers", [[], ["Negotiate"], ["Digest"], ['Digest realm="r"'], [""], [",,,"], ["=,=,"], ['"""']])
def test_nothing_that_is_understood(headers: list[str]) -> None:
    login = Login(WHO)
    assert not login.refused(headers)
    assert login.header("PLAY", "rtsp://h/") is None
    assert login.unsupported == ", ".join(h.split(" ")[0].lower() for h in headers if h[:1].isalpha())


def test_session_algorithms_take_the_nonces_in() -> None:
    plain = _login('Digest realm="r", nonce="n", qop="auth", algorithm=MD5')
    session = _login('Digest realm="r", nonce="n", qop="auth", algorithm=md5-sess')
    bare = _login('Digest realm="r", nonce="n", algorithm=SHA-256-sess')
    first, second = (_fields(one.header("PLAY", "u")) for one in (plain, session))
    assert first["response"] != second["response"]

    def h(text: str) -> str:
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

    inner = h(h("Mufasa:r:Circle of Life") + ":n:c")
    assert second["response"] == h(f"{inner}:n:00000001:c:auth:{h('PLAY:u')}")
    assert second["algorithm"] == "md5-sess"
    assert _fields(bare.header("PLAY", "u"))["cnonce"] == "c"


def test_each_use_of_a_nonce_counts() -> None:
    login = _login(MD5)
    seen = [_fields(login.header("PLAY", "u")) for _ in range(17)]
    assert [one["nc"] for one in seen] == [f"{k:08x}" for k in range(1, 18)]
    assert len({one["response"] for one in seen}) == 17
    login.accepted()
    assert login.refused([MD5])
    assert _fields(login.header("PLAY", "u"))["nc"] == "00000001"


def test_client_nonces_are_random() -> None:
    seen = set()
    for _ in range(8):
        login = Login(WHO)
        login.refused([MD5])
        seen.add(_fields(login.header("PLAY", "u"))["cnonce"])
    assert len(seen) == 8
    assert min(map(len, seen)) >= 16


def test_a_wrong_password_is_tried_once() -> None:
    login = _login(MD5)
    assert not login.tried
    login.header("DESCRIBE", "u")
    assert not login.refused([MD5])
    assert login.tried


def test_stale_gives_one_more_try_with_the_new_nonce() -> None:
    login = _login(MD5)
    login.header("DESCRIBE", "u")
    assert login.refused(['Digest realm="r", nonce="new", qop="auth", stale=TRUE'])
    assert _fields(login.header("DESCRIBE", "u"))["nonce"] == "new"
    assert not login.refused(['Digest realm="r", nonce="newer", qop="auth", stale=true'])


def test_a_nonce_that_was_good_once_may_have_grown_old() -> None:
    login = _login(MD5)
    for _ in range(3):
        login.header("DESCRIBE", "u")
        login.accepted()
        login.header("SETUP", "u")
        assert login.refused([OLD])
    login.header("SETUP", "u")
    assert not login.refused([OLD])


def test_without_credentials_nobody_is_asked_twice() -> None:
    login = Login(None)
    login.header("DESCRIBE", "u")
    assert not login.refused([MD5])
    assert not login.tried


@pytest.mark.parametrize(
    ("header", "values"),
    [
        (r'Digest realm="a, \"b\", c=d\\", nonce="x=="', {"realm": 'a, "b", c=d\\', "nonce": "x=="}),
        ("Digest realm=bare,nonce=x", {"realm": "bare", "nonce": "x"}),
        ('Digest  realm = "a" ,, nonce\t=\t"b"', {"realm": "a", "nonce": "b"}),
        ('Digest realm="a" nonce="b" stale=false', {"realm": "a", "nonce": "b", "stale": "false"}),
        ('Digest REALM="a", realm="b"', {"realm": "a"}),
        ('Digest realm="never ends, nonce=x', {"realm": "never ends, nonce=x"}),
        ('Digest realm="", nonce=', {"realm": "", "nonce": ""}),
    ],
)
def test_headers_as_servers_write_them(header: str, values: dict[str, str]) -> None:
    assert challenges([header]) == [Challenge("digest", values)]


def test_what_is_echoed_is_quoted_again() -> None:
    login = _login(r'Digest realm="a \"b\" \\", nonce="n"', who=Credentials('q"u\\', "p"))
    header = login.header("PLAY", "rtsp://h/")
    assert r'realm="a \"b\" \\"' in str(header)
    assert r'username="q\"u\\"' in str(header)


def test_endless_offers_end() -> None:
    assert len(challenges(["Digest " * 10_000])) == MAX_CHALLENGES
    assert len(challenges(["Digest"] * 10_000)) == MAX_CHALLENGES


def test_passwords_are_in_no_repr() -> None:
    login = _login(MD5)
    assert not re.search("Mufasa|Circle", f"{WHO!r} {login!r} {vars(login)!r}")
