"""Finished cubins by key, in a folder or an object store: fetched before ninja, published after.

obstore reaches the store (folder, s3://, gs://, az://); its usual environment variables configure
it (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_ALLOW_HTTP, ...). A store saves time and never decides
a build: what it cannot deliver, or delivers wrong, is compiled. Who may write to a store decides
what is in wheels.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore, from_url

from build_tools.cubin import NotACubinError, mismatches, read_facts
from build_tools.errors import DiskError, UsageError
from build_tools.file_writes import write_whole
from build_tools.folders import WorkFolder
from build_tools.plan import Planned
from build_tools.scale.cubin_object import ObjectFacts, ObjectFault, pack, unpack

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_THREADS = 16
_LAYOUT = "v1"
_SHOWN_FAULTS = 3
_HINT = "a folder, or s3://bucket/prefix, gs://..., az://..."
_ALLOW_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
"""A store on a site's own machines may have no certificate; obstore asks that this is said."""
_RETRY: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}

Say = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Wanted:
    """A compilation whose cubin may be in the store. headers: files that its source includes."""

    planned: Planned
    key: str
    headers: tuple[str, ...]


class CubinStore:
    """say: is told once what goes wrong; nothing raises after the opening."""

    def __init__(self, store: ObjectStore, place: str, say: Say) -> None:
        self.place = place
        self._store = store
        self._say = say
        self._refused: set[str] = set()
        self._broken = False

    def fetch(self, work: WorkFolder, wanted: Sequence[Wanted]) -> frozenset[str]:
        """Put what the store has into the work folder, for the edges to take. Returns names."""
        missing = [one for one in wanted if not _is_current(work, one)]
        found = self._each(missing, lambda one: self._fetch_one(work, one))
        if self._refused:
            keys = ", ".join(sorted(self._refused)[:_SHOWN_FAULTS])
            self._say(f"store {self.place}: {len(self._refused)} objects refused ({keys})")
        return frozenset(name for name in found if name is not None)

    def publish(self, work: WorkFolder, wanted: Sequence[Wanted], built: Iterable[str]) -> int:
        """Store what this run compiled and what is what it was planned to be. Returns how many."""
        names = frozenset(built)
        fresh = [one for one in wanted if one.planned.name in names]
        return sum(
            1 for done in self._each(fresh, lambda one: self._publish_one(work, one)) if done
        )

    def _fetch_one(self, work: WorkFolder, one: Wanted) -> str | None:
        try:
            content = bytes(obstore.get(self._store, _path(one.key)).bytes())
        except (NotFoundError, FileNotFoundError):
            return None
        try:
            facts, cubin = unpack(content, one.key, one.planned.name)
            wrong = mismatches(read_facts(cubin), one.planned)
        except (ObjectFault, NotACubinError) as error:
            wrong = [str(error)]
        if wrong:
            self._refused.add(f"{one.key[:16]} {'; '.join(wrong)}")
            return None
        record = {
            "headers": facts.headers,
            "key": one.key,
            "milliseconds": facts.milliseconds,
            "spill_bytes": facts.spill_bytes,
        }
        write_whole(work.fetched(one.key, "json"), json.dumps(record).encode())
        write_whole(work.fetched(one.key, "cubin"), cubin)
        return one.planned.name

    def _publish_one(self, work: WorkFolder, one: Wanted) -> bool:
        name = one.planned.name
        try:
            cubin = work.cubin(name).read_bytes()
            record = json.loads(work.record(name).read_text(encoding="utf-8"))
            facts = read_facts(cubin)
        except (OSError, ValueError, NotACubinError):
            return False
        if record.get("key") != one.key or mismatches(facts, one.planned):
            return False
        times = int(record["spill_bytes"]), int(record["milliseconds"])
        described = ObjectFacts(one.key, name, facts.sha256, len(cubin), *times, one.headers)
        replace = any(text.startswith(one.key[:16]) for text in self._refused)
        try:
            content = pack(described, cubin)
            if replace:
                obstore.put(self._store, _path(one.key), content)
            else:
                obstore.put(self._store, _path(one.key), content, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def _each(self, items: Sequence[Wanted], do: Callable[[Wanted], Result]) -> list[Result | None]:
        """In threads; the first failure of the store itself ends its use in this run."""

        def guarded(one: Wanted) -> Result | None:
            if self._broken:
                return None
            try:
                return do(one)
            except (BaseError, OSError) as error:
                if not self._broken:
                    self._broken = True
                    first = str(error).strip().splitlines()[0] if str(error) else repr(error)
                    self._say(f"store {self.place}: not used any more in this run ({first})")
                return None

        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(guarded, items))


def open_store(place: str, say: Say) -> CubinStore:
    """place: folder or URL. Raises: UsageError, DiskError."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if place.startswith("s3://") and endpoint.startswith("http://") and not _allows_http():
        message = f"AWS_ENDPOINT_URL is {endpoint}, not encrypted"
        raise UsageError.of("--store", message, "AWS_ALLOW_HTTP=true where that is meant")
    try:
        if "://" in place:
            store = from_url(place, client_options=_client(), retry_config=_RETRY)
        else:
            store = LocalStore(Path(place).absolute(), mkdir=True)
    except (BaseError, ValueError, TypeError, NotImplementedError) as error:
        first = str(error).strip().splitlines()[0]
        if "://" in place:
            raise UsageError.of("--store", f"{place!r}: {first}", _HINT) from error
        raise DiskError.of("--store", f"{place}: {first}") from error
    return CubinStore(store, place, say)


def _client() -> ClientConfig:
    """Options given replace those of the environment as a whole, so that one is read here."""
    return {"timeout": "30s", "connect_timeout": "3s", "allow_http": _allows_http()}


def _allows_http() -> bool:
    return any(os.environ.get(name, "").lower() in ("1", "true") for name in _ALLOW_HTTP)


def _path(key: str) -> str:
    return f"{_LAYOUT}/{key[:2]}/{key}"


def _is_current(work: WorkFolder, one: Wanted) -> bool:
    """Does the work folder have the output of this very compilation?"""
    try:
        record = json.loads(work.record(one.planned.name).read_text(encoding="utf-8"))
        return record["key"] == one.key and work.cubin(one.planned.name).is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return False
