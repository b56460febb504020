"""Follows the objects of one kind: lists them, then takes their changes, as
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import aiohttp

from gateway.readers.valid_texts import load_object
from gateway.scrape.http_client import HttpClient, ScrapeError
from gateway.scrape.job import Http
from gateway.scrape.target_groups import MAX_TARGETS

_PAGE = 250
"""Objects that are asked for at once."""
_LARGEST_PAGE = 64 << 20
_LARGEST_OBJECT = 4 << 20
"""Bytes in JSON. The API server stores 1.5 MB of an object at most."""
_WATCH_S = 240
"""The server ends a watch after this time. So a connection that is dead without a word is found out."""
_ANSWER_S = 30.0
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

ObjectT = TypeVar("ObjectT")


class _Expired(Exception):
    """The server no longer has the changes since a version."""


class Watch(Generic[ObjectT]):
    """The objects of one kind, from the list at one URL: `objects` by namespace and name, as `convert` returns them.
    It raises one of AttributeError, KeyError, TypeError and ValueError for what is no such object, which is then in
    `invalid`, with what is wrong. While the server cannot be asked, `error` says why, and the objects stay as they
    were. `changed` is called after every change."""

    def __init__(
        self,
        client: HttpClient,
        url: str,
        http: Http,
        parameters: Sequence[tuple[str, str]],
        convert: Callable[[dict[str, Any]], ObjectT],
        changed: Callable[[], None],
    ) -> None:
        self._client, self._url, self._http, self._parameters = client, url, http, parameters
        self._convert, self._changed = convert, changed
        self.objects: dict[tuple[str, str], ObjectT] = {}
        self.invalid: dict[tuple[str, str], str] = {}
        self.error = ""
        self._version = ""

    async def run(self) -> None:
        """Follows the objects until it is cancelled."""
        failures = 0
        while True:
            try:
                if self._version:
                    await self._follow()
                    failures = 0  # a list that may not be followed is no success
                else:
                    await self._list()
            except _Expired:
                self._version = ""
                failures += 1
            except TimeoutError:
                failures += 1
                self._tell(f"no complete answer from {self._url}")
            except ScrapeError as error:
                failures += 1
                if error.result != "unreachable":
                    self._version = ""
                if failures > 1 or not self._version:  # there are proxies that cut each watch after a minute
                    self._tell(f"{self._url}: {error}")
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(failures, 10)))

    def _tell(self, error: str) -> None:
        if self.error != error:
            self.error = error
            self._changed()

    async def _list(self) -> None:
        objects: dict[tuple[str, str], ObjectT] = {}
        invalid: dict[tuple[str, str], str] = {}
        token = ""
        while True:
            page = await self._page(token)
            items, metadata = page.get("items") or [], page.get("metadata")  # Go writes null for an empty list
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise ScrapeError("status", "expected a list of objects")
            for one in items:
                self._add(one, objects, invalid)
            token = str(metadata.get("continue") or "")
            if not token:
                break
        self._version = _version(metadata)
        self.objects, self.invalid = objects, invalid
        self.error = ""
        self._changed()

    async def _page(self, token: str) -> dict[str, Any]:
        body = bytearray()
        async with (
            asyncio.timeout(_ANSWER_S),
            self._asking({"limit": str(_PAGE), **({"continue": token} if token else {})}) as answer,
        ):
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > _LARGEST_PAGE:
                    raise ScrapeError("too_large", f"a page of the list has more than {_LARGEST_PAGE} bytes")
        return await asyncio.to_thread(_object, bytes(body))

    async def _follow(self) -> None:
        """Takes changes until the server ends the watch."""
        asked = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_S)}
        async with (
            asyncio.timeout(_WATCH_S + _ANSWER_S),
            self._asking({**asked, "resourceVersion": self._version}) as answer,
        ):
            self._tell("")
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > _LARGEST_OBJECT:
                    raise ScrapeError("too_large", f"an object has more than {_LARGEST_OBJECT} bytes")
                for line in lines:
                    self._change(_object(line))

    def _change(self, event: dict[str, Any]) -> None:
        kind, changed = event.get("type"), event.get("object")
        if not isinstance(changed, dict):
            raise ScrapeError("status", "expected changes of objects")
        if kind == "ERROR":
            if changed.get("code") == 410:
                raise _Expired
            raise ScrapeError("status", f"it ends the watch: {changed.get('message')!r:.300}")
        if kind in ("ADDED", "MODIFIED"):
            self._add(changed, self.objects, self.invalid)
        elif kind == "DELETED":
            for known in (self.objects, self.invalid):
                known.pop(_key(changed), None)
        if kind != "BOOKMARK":
            self._changed()
        self._version = _version(changed.get("metadata"))

    def _add(self, one: Any, objects: dict[tuple[str, str], ObjectT], invalid: dict[tuple[str, str], str]) -> None:
        key = _key(one)
        objects.pop(key, None)
        invalid.pop(key, None)
        try:
            objects[key] = self._convert(one)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            invalid[key] = f"{self._url}: {'/'.join(key):.300}: {error!s:.100}"
        if len(objects) + len(invalid) > MAX_TARGETS:
            raise ScrapeError("too_large", f"there are more than {MAX_TARGETS} objects")

    @asynccontextmanager
    async def _asking(self, more: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        parameters = [*self._parameters, *more.items()]
        try:
            async with self._client.get(self._url, self._http, parameters, {"Accept": "application/json"}) as answer:
                yield answer
        except ScrapeError as error:
            if error.status == 410:
                raise _Expired from None
            raise


def _object(data: bytes) -> dict[str, Any]:
    try:
        return load_object(data)
    except (ValueError, RecursionError) as error:
        raise ScrapeError("status", f"expected JSON: {error!s:.200}") from None


def _key(one: Any) -> tuple[str, str]:
    metadata = one.get("metadata") if isinstance(one, dict) else None
    if not isinstance(metadata, dict):
        raise ScrapeError("status", "expected objects with metadata")
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _version(metadata: Any) -> str:
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise ScrapeError("status", "expected a resourceVersion")
    return version
