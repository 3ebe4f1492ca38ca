"""Single sign-on by OpenID Connect: the authorization code flow with PKCE (RFC 7636), a state and a nonce.

What an attempt must bring back lies in a cookie of the browser that began it, so any replica can finish it. Authlib speaks OAuth to the
provider, joserfc checks the ID token: its signature by the provider's published keys, issuer, audience, times and nonce (OpenID Connect
Core 1.0, section 3.1.3.7).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from paceline.api.errors import ProblemError
from paceline.api.settings import Settings
from paceline.credentials import new_secret

PROVIDER_SECONDS = 10.0
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
#: How far the provider's clock may be from ours.
LEEWAY_SECONDS = 60


@dataclass(frozen=True)
class SignInAttempt:
    """One browser's attempt: the secrets that it must bring back, kept in a cookie meanwhile, and the page to go on to."""

    next: str
    state: str = field(default_factory=new_secret)
    nonce: str = field(default_factory=new_secret)
    verifier: str = field(default_factory=new_secret)

    def cookie(self) -> str:
        return urlencode(asdict(self))

    @classmethod
    def of_cookie(cls, cookie: str | None, state: str | None) -> SignInAttempt:
        """The attempt in a cookie. Raises ProblemError where there is none, or where `state` is that of another one."""
        parts = dict(parse_qsl(cookie or "", keep_blank_values=True))
        if parts.keys() != {"next", "state", "nonce", "verifier"} or not hmac.compare_digest(
            parts["state"].encode(), (state or "").encode()
        ):
            raise refused("this browser did not begin that attempt, or began it more than 10 minutes ago")
        return cls(**parts)


@dataclass(frozen=True)
class ProviderIdentity:
    """A user as the provider names them. The subject never changes; name and groups may."""

    subject: str
    name: str
    groups: frozenset[str]


def refused(why: str) -> ProblemError:
    return ProblemError("oidc_refused", why)


@dataclass
class OidcProvider:
    settings: Settings
    _metadata: dict[str, Any] = field(default_factory=dict)
    _keys: KeySet | None = None

    async def authorization_url(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Where the browser asks the provider to sign its user in."""
        metadata = await self._discovered()
        async with self._client(redirect_uri) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=attempt.state, code_verifier=attempt.verifier, nonce=attempt.nonce
            )
        return str(url)

    async def identify(self, attempt: SignInAttempt, code: str, redirect_uri: str) -> ProviderIdentity:
        """Exchange a code for an ID token, and check it. Raises ProblemError."""
        metadata = await self._discovered()
        try:
            async with self._client(redirect_uri) as client:
                answer = await client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=attempt.verifier)
        except AuthlibBaseError as error:
            raise refused(f"the provider did not take the code: {error}") from error
        except httpx.HTTPError as error:
            raise _unavailable(error) from error
        claims = await self._claims(str(answer.get("id_token", "")), attempt.nonce)
        return self._identity(claims)

    def _client(self, redirect_uri: str) -> AsyncOAuth2Client:
        secret = self.settings.oidc_client_secret.get_secret_value()
        return AsyncOAuth2Client(
            client_id=self.settings.oidc_client_id,
            client_secret=secret or None,
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            scope=self.settings.oidc_scopes,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=PROVIDER_SECONDS,
        )

    async def _discovered(self) -> dict[str, Any]:
        """The provider's own description, read once. Raises ProblemError where it is away, or describes another issuer."""
        if not self._metadata:
            issuer = self.settings.oidc_issuer
            found = await _fetched(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != issuer:
                raise refused(f"PACELINE_OIDC_ISSUER is {issuer!r}, but the provider calls itself {found.get('issuer')!r}")
            self._metadata = found
        return self._metadata

    async def _claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """The claims of an ID token. An unknown or a changed key has the keys read again: providers replace theirs."""
        try:
            try:
                claims = jwt.decode(token, await self._signing_keys(), algorithms=ALGORITHMS).claims
            except (JoseError, ValueError):
                claims = jwt.decode(token, await self._signing_keys(anew=True), algorithms=ALGORITHMS).claims
            self._rules(nonce).validate(claims)
        except (JoseError, ValueError) as error:
            raise refused(f"the ID token is not valid: {error}") from error
        if claims.get("azp", self.settings.oidc_client_id) != self.settings.oidc_client_id:
            raise refused("the ID token was issued to another client")
        return claims

    def _rules(self, nonce: str) -> jwt.JWTClaimsRegistry:
        return jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self.settings.oidc_issuer},
            aud={"essential": True, "value": self.settings.oidc_client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )

    async def _signing_keys(self, *, anew: bool = False) -> KeySet:
        if self._keys is None or anew:
            metadata = await self._discovered()
            self._keys = KeySet.import_key_set(await _fetched(metadata["jwks_uri"]))  # type: ignore[arg-type]
        return self._keys

    def _identity(self, claims: Mapping[str, Any]) -> ProviderIdentity:
        name, groups = claims.get(self.settings.oidc_name_claim), claims.get(self.settings.oidc_groups_claim) or []
        if not isinstance(name, str) or not name:
            raise refused(f"the ID token has no claim {self.settings.oidc_name_claim!r}; PACELINE_OIDC_NAME_CLAIM names another one")
        named = [groups] if isinstance(groups, str) else groups
        return ProviderIdentity(f"{claims['iss']} {claims['sub']}", name, frozenset(str(group) for group in named))


async def _fetched(url: str) -> dict[str, Any]:
    try:
        async with httpx.AsyncClient(timeout=PROVIDER_SECONDS) as client:
            found: dict[str, Any] = (await client.get(url)).raise_for_status().json()
            return found
    except (httpx.HTTPError, ValueError) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> ProblemError:
    return ProblemError("oidc_unavailable", f"the provider does not answer as it should: {error or type(error).__name__}")
