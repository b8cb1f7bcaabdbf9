"""S3 and stores that speak like it, through s3fs: its session, its credentials, its retries.

Without credentials in the environment requests are anonymous, as public buckets want them. The endpoint of another
store than Amazon's is taken from `AWS_ENDPOINT_URL`, as the tools of Amazon do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import s3fs
from fsspec.asyn import get_loop

from openreadout import limits
from openreadout.errors import CorruptDataError, RemoteError
from openreadout.remote.transport import (
    CONNECT_SECONDS,
    NOT_UNDERSTOOD,
    PIECE,
    SILENCE_SECONDS,
    TRIES,
    Answer,
    Listing,
    Watch,
    changed,
    content_range,
    failed,
    other_bytes,
    pause,
    plain,
    tail_by_size,
    too_large,
    wait_for,
)
from openreadout.remote.urls import shown

KEYS_AT_ONCE = 1000
"""Keys of one page of a listing, and of one request that deletes; both are S3's own limits."""

CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables of the environment any of which says that requests are to be signed."""

Result = TypeVar("Result")


class S3Transport:
    """Speaks S3. It can also write; nothing of what is written depends on another request's order."""

    lists_all = True

    def __init__(self) -> None:
        self.anonymous = not any(os.environ.get(name) for name in CREDENTIALS)
        self._system = s3fs.S3FileSystem(
            anon=self.anonymous,
            loop=get_loop(),
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "retries": {"total_max_attempts": TRIES, "mode": "standard"},
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": SILENCE_SECONDS,
                "max_pool_connections": limits.MAX_REQUESTS,
            },
        )
        self._system.retries = 1  # the client itself tries again
        self._gate: asyncio.Semaphore | None = None
        self._no_tails = False
        """Whether the server does not understand a range without a beginning."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def fetch(
        self, url: str, offset: int | None, length: int, tag: str | None = None
    ) -> Answer | None:
        if offset is not None and length <= 0:
            return Answer(b"")
        more: dict[str, Any] = {} if tag is None else {"IfMatch": tag}
        if offset is not None:
            more["Range"] = f"bytes={offset}-{offset + length - 1}"

        async def get() -> Answer:
            response = await self._call("get_object", url, **more)
            async with response["Body"] as body:
                return await _body(url, response, body, offset, length)

        try:
            return self._ask(get, url)
        except _PastTheEndError:
            return Answer(b"", self.size(url))

    def tail(self, url: str, length: int) -> Answer | None:
        async def get() -> Answer:
            try:
                response = await self._call("get_object", url, Range=f"bytes=-{length}")
            except Exception as error:  # s3fs, botocore and aiohttp have no common one
                if _status(error) in (400, 501):
                    return NOT_UNDERSTOOD
                raise
            async with response["Body"] as body:
                return await _last(url, response, body, length)

        if not self._no_tails:
            try:
                answer = self._ask(get, url)
            except _PastTheEndError:
                # there are no bytes, or the server refuses more than there are
                return tail_by_size(self, url, length)
            if answer is not NOT_UNDERSTOOD:
                return answer
        answer = tail_by_size(self, url, length)
        if answer is not None and (answer.total or 0) > length:
            self._no_tails = True
        return answer

    def size(self, url: str) -> int | None:
        async def head() -> int:
            response = await self._call("head_object", url)
            return int(response["ContentLength"])

        return self._ask(head, url)

    def listing(self, url: str) -> Listing | None:
        bucket, prefix = _parts(url)
        folder = f"{prefix}/" if prefix else ""
        folders: list[str] = []
        files: list[str] = []
        try:
            with Watch():  # of its own: a bucket that may be read and not be listed is common
                for page in self._pages(url, bucket, folder, "/"):
                    folders += [
                        entry["Prefix"][len(folder) : -1]
                        for entry in page.get("CommonPrefixes", ())
                    ]
                    files += [entry["Key"][len(folder) :] for entry in page.get("Contents", ())]
        except RemoteError:
            return None
        return Listing(frozenset(folders), frozenset(filter(None, files)))

    def walk(self, url: str) -> Iterator[tuple[str, int]] | None:
        return ((key, size) for key, size, _ in self.tags(url))

    def tags(self, url: str) -> Iterator[tuple[str, int, str]]:
        bucket, prefix = _parts(url)
        folder = f"{prefix}/" if prefix else ""
        return (
            (entry["Key"][len(folder) :], int(entry["Size"]), str(entry.get("ETag", "")))
            for page in self._pages(url, bucket, folder, "")
            for entry in page.get("Contents", ())
            if not entry["Key"].endswith("/")
        )

    def ages(self, url: str, keys: Sequence[str], most: int) -> dict[str, float | None]:
        """When objects were written: a page of the listing tells it of all that lie close to each other."""
        bucket, prefix = _parts(url)
        folder = f"{prefix}/" if prefix else ""
        waiting = sorted(keys, key=str.encode, reverse=True)
        found: dict[str, float | None] = {}
        for _ in range(most):
            if not waiting:
                break
            first = folder + waiting[-1]
            # what is listed are keys behind the one that is given, in the order of their UTF-8
            page = next(self._pages(url, bucket, folder, "", first[:-1]), None)
            if page is None:
                break
            listed = {e["Key"]: e["LastModified"].timestamp() for e in page.get("Contents", ())}
            last = max(listed, key=str.encode, default="")
            whole = not page.get("IsTruncated")
            while waiting and (whole or (folder + waiting[-1]).encode() <= last.encode()):
                key = waiting.pop()
                found[key] = listed.get(folder + key)
        return found

    def _pages(
        self, url: str, bucket: str, prefix: str, delimiter: str, start: str | None = None
    ) -> Iterator[Any]:
        after: dict[str, str] = {} if start is None else {"StartAfter": start}
        while True:

            async def page(after: dict[str, str] = after) -> Any:
                return await self._system._call_s3(
                    "list_objects_v2",
                    Bucket=bucket,
                    Prefix=prefix,
                    Delimiter=delimiter,
                    MaxKeys=KEYS_AT_ONCE,
                    **after,
                )

            found = self._ask(page, url)
            if found is None:
                return
            yield found
            token = found.get("NextContinuationToken")
            if not found.get("IsTruncated") or not token or after.get("ContinuationToken") == token:
                return
            after = {"ContinuationToken": token}

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, url: str, data: bytes) -> str:
        """Write one object; it appears when all of it has arrived."""
        return self._written(self._put(url, data), url)

    def put_new(self, url: str, data: bytes) -> str | None:
        """Write one object unless there is one (a conditional write, which S3 knows since 2024)."""
        return self._written(self._put(url, data, IfNoneMatch="*"), url) or None

    def replace(self, url: str, data: bytes, tag: str) -> str | None:
        """Write one object where the one with a tag is (a conditional write as well)."""
        return self._put(url, data, IfMatch=tag) or None

    def _put(self, url: str, data: bytes, **condition: str) -> str | None:
        """The tag of what was written; empty where the condition is not met, None where there is no such bucket.

        With `IfMatch`, None also says that there is no such object.
        """

        async def put() -> str:
            try:
                return str((await self._call("put_object", url, Body=data, **condition))["ETag"])
            except Exception as error:  # s3fs, botocore and aiohttp have no common one
                status = _status(error) if condition else None
                if status in (409, 412):
                    return ""
                if status != 501:
                    raise
                return str((await self._call("put_object", url, Body=data))["ETag"])

        return self._ask(put, url)

    def sweep(self, url: str) -> None:
        """Abort the uploads below an address that nobody completed: of a run that was killed, say."""
        bucket, prefix = _parts(url)

        async def uploads() -> list[tuple[str, str]]:
            found = await self._system._call_s3(
                "list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/"
            )
            return [(entry["Key"], entry["UploadId"]) for entry in found.get("Uploads") or ()]

        try:
            with (
                Watch()
            ):  # of its own: a key that may write objects need not be allowed to list uploads
                for key, upload in self._ask(uploads, url) or ():
                    self.drop(f"s3://{bucket}/{key}", upload)
        except RemoteError:
            return  # the bucket's rule for incomplete uploads removes them

    def begin(self, url: str) -> str:
        """Start an object that comes in parts; gives the upload's id."""

        async def create() -> str:
            return str((await self._call("create_multipart_upload", url))["UploadId"])

        return str(self._written(self._ask(create, url), url))

    def part(self, url: str, upload: str, number: int, data: bytes) -> str:
        """Send part `number` (from 1), at least 5 MiB but for the last; gives its tag."""

        async def send() -> str:
            response = await self._call(
                "upload_part", url, UploadId=upload, PartNumber=number, Body=data
            )
            return str(response["ETag"])

        return str(self._written(self._ask(send, url), url))

    def complete(self, url: str, upload: str, tags: Sequence[str]) -> str:
        """Make the object appear from its parts."""
        parts = [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(tags, 1)]

        async def complete() -> str:
            response = await self._call(
                "complete_multipart_upload",
                url,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
            return str(response["ETag"])

        return self._written(self._ask(complete, url), url)

    def drop(self, url: str, upload: str) -> None:
        """Forget the parts that were sent; without it they take room for ever."""

        async def drop() -> bool:
            await self._call("abort_multipart_upload", url, UploadId=upload)
            return True

        self._ask(drop, url)

    def delete(self, url: str, keys: Sequence[str]) -> None:
        """Remove objects below an address; one that is not there is no error."""
        bucket, prefix = _parts(url)
        folder = f"{prefix}/" if prefix else ""
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = [{"Key": folder + key} for key in keys[start : start + KEYS_AT_ONCE]]

            async def delete(some: list[dict[str, str]] = some) -> Any:
                return await self._system._call_s3(
                    "delete_objects", Bucket=bucket, Delete={"Objects": some, "Quiet": True}
                )

            answer = self._written(self._ask(delete, url), url)
            if isinstance(answer, dict) and answer.get("Errors"):
                said = answer["Errors"][0]
                raise failed(
                    RemoteError(
                        f"{shown(url)}: {said.get('Key')} cannot be removed ({said.get('Code')})",
                        path=url,
                    )
                )

    def delete_same(self, url: str, tag: str) -> None:
        """Remove one object unless it has another tag (a condition that S3 knows since 2025)."""

        async def delete() -> bool:
            try:
                await self._call("delete_object", url, IfMatch=tag)
            except Exception as error:  # s3fs, botocore and aiohttp have no common one
                status = _status(error)
                if status == 501:
                    await self._call("delete_object", url)
                elif status not in (409, 412):
                    raise
            return True

        self._ask(delete, url)

    def _written(self, answer: Result | None, url: str) -> Result:
        if answer is None:
            raise failed(
                RemoteError(
                    f"{shown(url)}: there is no such bucket",
                    hint="make the bucket first, or choose another with -o",
                    path=url,
                )
            )
        return answer

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _call(self, method: str, url: str, **arguments: Any) -> Any:
        bucket, key = _parts(url)
        return await self._system._call_s3(method, Bucket=bucket, Key=key, **arguments)

    def _ask(self, work: Callable[[], Awaitable[Result]], url: str) -> Result | None:
        return wait_for(self._tries(work, url), url)

    async def _tries(self, work: Callable[[], Awaitable[Result]], url: str) -> Result | None:
        if self._gate is None:
            self._gate = asyncio.Semaphore(limits.MAX_REQUESTS)
        async with self._gate:
            for turn in range(1, TRIES + 1):
                try:
                    return await work()
                except FileNotFoundError:
                    return None
                except (RemoteError, CorruptDataError, _PastTheEndError):
                    raise
                except Exception as error:  # s3fs, botocore and aiohttp have no common one
                    again = self._sort_out(error, url)
                    if turn == TRIES or not _cut(error):
                        raise again from error
                    await asyncio.sleep(pause(turn))
        raise AssertionError("the last turn returns or raises")

    def _sort_out(self, error: Exception, url: str) -> RemoteError:
        """The error for what s3fs or the client below it raised; raises `_PastTheEndError` for that."""
        said = _said(error)
        status = _status(error)
        code = said.get("Error", {}).get("Code")
        if status == 416 or code == "InvalidRange":
            raise _PastTheEndError from error
        text = plain(error)
        if isinstance(error, PermissionError) or status in (401, 403):
            hint = (
                "requests were anonymous, since no AWS_ACCESS_KEY_ID or AWS_PROFILE is set"
                if self.anonymous
                else "the credentials of the environment may not read it; without them requests are anonymous"
            )
            return RemoteError(
                f"{shown(url)}: the server refuses to give it ({text})", hint=hint, path=url
            )
        if status == 412:
            return changed(url)
        if status is not None and status >= 500:
            return RemoteError(
                f"{shown(url)}: the server failed ({status}), {TRIES} times", path=url
            )
        return RemoteError(f"{shown(url)}: the server was not reached or failed ({text})", path=url)


class _PastTheEndError(Exception):
    """A range that starts behind the end of its object."""


def _said(error: Exception) -> dict[str, Any]:
    """What the server answered that led to an error; empty when it did not answer."""
    response = getattr(error.__cause__ or error, "response", None)
    return response if isinstance(response, dict) else {}


def _status(error: Exception) -> int | None:
    found = _said(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return found if isinstance(found, int) else None


def _cut(error: Exception) -> bool:
    """Whether an error comes from a body that ended early, which the client does not try again itself."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(
        names
        & {"ClientPayloadError", "IncompleteReadError", "ResponseStreamingError", "_ShortBodyError"}
    )


class _ShortBodyError(OSError):
    """A body of fewer bytes than were promised."""


def _parts(url: str) -> tuple[str, str]:
    """Bucket and key of an address."""
    bucket, _, key = url.partition("://")[2].partition("/")
    return bucket, key.rstrip("/")


async def _body(url: str, response: Any, body: Any, offset: int | None, length: int) -> Answer:
    promised = int(response.get("ContentLength", -1))
    if offset is None and promised > length:
        raise too_large(url, promised, length)
    total = promised
    if offset is not None:
        total = _total(url, response.get("ContentRange"), offset, promised)
    data = await _read(body, length + 1 if offset is None else length)
    if offset is None and len(data) > length:
        raise too_large(url, len(data), length)
    return _answer(response, data, promised, total)


async def _last(url: str, response: Any, body: Any, length: int) -> Answer:
    """The end of an object; `NOT_UNDERSTOOD` where it is not for certain the end that was asked for."""
    promised = int(response.get("ContentLength", -1))
    if response.get("ContentRange") is None:  # the whole object
        if not 0 <= promised <= length:
            body.close()
            return NOT_UNDERSTOOD
        return _answer(response, await _read(body, length), promised, promised)
    span = content_range(str(response["ContentRange"]))
    if span is None or not span.is_end(length):
        body.close()
        return NOT_UNDERSTOOD
    if promised != span.stop - span.start:
        raise other_bytes(url)
    return _answer(response, await _read(body, promised), promised, span.stop)


def _answer(response: Any, data: bytes, promised: int, total: int) -> Answer:
    if 0 <= promised != len(data):
        raise _ShortBodyError("the connection was cut inside the response")
    written = response.get("LastModified")
    return Answer(
        data,
        total,
        response.get("ETag"),
        None if written is None else written.timestamp(),
        _date(response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")),
    )


async def _read(body: Any, most: int) -> bytes:
    """Up to `most` bytes of a body; what comes after them is left where it is."""
    data = bytearray()
    while len(data) < most:
        piece = await body.read(min(PIECE, most - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)


def _date(said: Any) -> float | None:
    """Seconds since 1970 of the date that an answer bears; None where it bears none."""
    try:
        return parsedate_to_datetime(str(said)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _total(url: str, said: Any, offset: int, promised: int) -> int:
    """The length of the whole object, from the range that the server says it gives."""
    span = content_range(str(said or ""))
    if span is None or span.total is None:
        raise other_bytes(url)
    if span.start != offset or promised != span.stop - offset:
        raise other_bytes(url)
    return span.total
