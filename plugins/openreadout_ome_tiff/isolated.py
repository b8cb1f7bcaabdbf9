"""Decode JPEG XR in a process of its own.

The only decoder for it divides by zero, or worse, on damaged streams, which would end the whole program. The child
lives as long as the parent and decodes one stream after another; when it dies or hangs, that stream is damaged.
"""

from __future__ import annotations

import atexit
import json
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from openreadout.errors import CorruptDataError, UnsupportedFeatureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SECONDS = 60.0
"""How long the decoding of one strip or tile may take; a second is already long."""


class IsolatedDecoder:
    """A child process that decodes streams; calls from several threads take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def decode(self, stream: bytes, max_bytes: int) -> NDArray[Any]:
        """Decode one stream.

        Raises
        ------
        CorruptDataError
            It does not decode, or to more than `max_bytes`.
        UnsupportedFeatureError
            The codec is not installed, or no process can be started.
        """
        import numpy as np

        with self._lock:
            child = self._started()
            timer = threading.Timer(MAX_SECONDS, child.kill)
            timer.start()
            try:
                header, body = _ask(child, stream, max_bytes)
            except (OSError, EOFError, struct.error) as error:
                self._stop()
                raise CorruptDataError("jpegxr: the decoder broke down on the stream") from error
            finally:
                timer.cancel()
        if "unsupported" in header:
            raise UnsupportedFeatureError(header["unsupported"])
        if "fault" in header:
            raise CorruptDataError(f"jpegxr: {header['fault']}")
        return np.frombuffer(body, np.dtype(header["dtype"])).reshape(header["shape"])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            child = Path(__file__).with_name("_jpegxr_child.py")
            try:
                self._child = subprocess.Popen(  # noqa: S603 - our own file, and this interpreter
                    [sys.executable, "-P", str(child)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise UnsupportedFeatureError("jpegxr: its decoder cannot be started") from error
            atexit.register(self.close)
        return self._child

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what is left in its buffer has nowhere to go
                    continue
        child.wait()

    def close(self) -> None:
        """End the child; the next stream starts another."""
        with self._lock:
            self._stop()


def _ask(
    child: subprocess.Popen[bytes], stream: bytes, max_bytes: int
) -> tuple[dict[str, Any], bytes]:
    if child.stdin is None or child.stdout is None:
        raise EOFError
    child.stdin.write(struct.pack("<QQ", len(stream), max_bytes) + stream)
    child.stdin.flush()
    header_bytes, body_bytes = struct.unpack("<QQ", _exactly(child.stdout, 16))
    header = json.loads(_exactly(child.stdout, header_bytes))
    return header, _exactly(child.stdout, body_bytes)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    data = pipe.read(length)
    if len(data) != length:
        raise EOFError
    return data


JPEGXR = IsolatedDecoder()
"""The one child of this process, started with the first stream."""
