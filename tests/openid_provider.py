"""An OpenID provider over real HTTP, for tests: discovery, keys, the authorization code flow with PKCE, ID tokens signed by RSA.

Whoever comes to /authorize is signed in as `claims` says. `lies` replaces claims of the ID token, so that a client can be shown a wrong one.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT, SECRET = "paceline", "hush"
BASIC = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()


def new_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})


@dataclass
class OpenIdProvider:
    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "s-1", "email": "ada@example.org", "groups": []})
    lies: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=new_key)
    #: Signs instead of the published key.
    forger: RSAKey | None = None
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key_reads: int = 0

    def configuration(self) -> dict[str, str]:
        ends = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in (("authorization", "authorize"), ("token", "token"))}
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **ends}

    def published(self) -> dict[str, Any]:
        self.key_reads += 1
        return dict(KeySet([self.key]).as_dict(private=False))

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to."""
        assert (asked["response_type"], asked["client_id"], asked["code_challenge_method"]) == ("code", CLIENT, "S256")
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.issuer, "session_state": "of no interest"}
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, form: dict[str, str], authorization: str | None) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if authorization != BASIC:
            return 401, {"error": "invalid_client"}
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if create_s256_code_challenge(form["code_verifier"]) != asked["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "the verifier is another one"}
        return 200, {"access_token": secrets.token_urlsafe(), "token_type": "Bearer", "id_token": self._id_token(asked["nonce"])}

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        told = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, told | self.claims | self.lies, self.forger or self.key)


@contextmanager
def serve() -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _door_of(provider))
    server.daemon_threads = True
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield provider
    server.shutdown()
    thread.join(timeout=5)
    server.server_close()


def _door_of(provider: OpenIdProvider) -> type[BaseHTTPRequestHandler]:
    class ProviderDoor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(dict(parse_qsl(parts.query))))
                self.end_headers()
                return
            documents = {"/.well-known/openid-configuration": provider.configuration, "/keys": provider.published}
            self._answer(200, documents[parts.path]())

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self._answer(*provider.exchange(form, self.headers.get("Authorization")))

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Tests look at what the client got."""

    return ProviderDoor
