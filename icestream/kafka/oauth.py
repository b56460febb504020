"""Tokens for SASL's OAUTHBEARER: from a file that something else renews, or from a token endpoint (OpenID Connect).

Both Kafka clients ask `token` again before a token expires.
"""

import base64
import binascii
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple

from icestream.settings import KafkaSettings, SettingError

MECHANISM = "OAUTHBEARER"
_TIMEOUT_S = 15.0
_READ_AGAIN_S = 300.0  # a token that does not say when it expires
_MAX_BYTES = 1_000_000


class TokenError(RuntimeError):
    """There is no token now; the message says why. It is asked for again."""


class OAuthToken(NamedTuple):
    value: str
    expires_unix_s: float


def token(settings: KafkaSettings) -> OAuthToken:
    """Returns a token that is valid now. Raises TokenError, and SettingError where no source is set."""
    if settings.kafka_oauth_token_file:
        return _from_file(Path(settings.kafka_oauth_token_file).expanduser())
    if settings.kafka_oauth_token_url:
        return _from_endpoint(settings)
    raise SettingError(f"{MECHANISM} needs kafka_oauth_token_file or kafka_oauth_token_url")


def _from_file(path: Path) -> OAuthToken:
    try:
        value = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise TokenError(f"cannot read the token file {path}: {error}") from None
    return OAuthToken(value, _expiry(value) or time.time() + _READ_AGAIN_S)


def _from_endpoint(settings: KafkaSettings) -> OAuthToken:
    """Asks for a token by client credentials (RFC 6749, section 4.4)."""
    url = settings.kafka_oauth_token_url
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise SettingError(f"kafka_oauth_token_url: expected an http or https address, got {url!r}")
    form = {"grant_type": "client_credentials"} | ({"scope": s} if (s := settings.kafka_oauth_scope) else {})
    client = ":".join(
        urllib.parse.quote_plus(part) for part in (settings.kafka_sasl_username, settings.kafka_sasl_password)
    )
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode())
    request.add_header("Authorization", f"Basic {base64.b64encode(client.encode()).decode()}")
    request.add_header("Accept", "application/json")
    trusted = ssl.create_default_context()
    if settings.kafka_ssl_ca:
        trusted.load_verify_locations(settings.kafka_ssl_ca)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trusted) as answer:
            body = json.loads(answer.read(_MAX_BYTES))
        value = str(body["access_token"])
        expires = time.time() + float(body["expires_in"]) if "expires_in" in body else _expiry(value)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenError(f"no token from {url}: {error!r}") from None
    return OAuthToken(value, expires or time.time() + _READ_AGAIN_S)


def _expiry(value: str) -> float | None:
    """The claim `exp` of a token that is a JWT; Kafka checks the token, not we."""
    try:
        claims = value.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None
