"""The child of `isolated.py`: decodes the JPEG XR streams on its standard input until that ends.

It is run as a file and imports nothing of the project. A request is two 64-bit numbers (length, and the most bytes that
the result may have) and the stream; an answer is two (lengths of header and body), the header in JSON and the samples.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any


def answer(stream: bytes, max_bytes: int) -> tuple[dict[str, Any], bytes]:
    """Header and samples of the decoded stream, or a header that says what is wrong."""
    try:
        import imagecodecs

        image = imagecodecs.jpegxr_decode(stream)
    except ImportError:
        return {"unsupported": "the codec jpegxr is not part of the installed imagecodecs"}, b""
    except Exception as error:  # whatever it is, the parent waits for an answer
        return {"fault": str(error)[:200]}, b""
    if image.nbytes > max_bytes:
        return {"fault": f"{image.nbytes} bytes where at most {max_bytes} belong"}, b""
    return {"dtype": image.dtype.str, "shape": list(image.shape)}, image.tobytes()


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(16)) == 16:
        length, max_bytes = struct.unpack("<QQ", head)
        header, body = answer(source.read(length), max_bytes)
        text = json.dumps(header).encode()
        target.write(struct.pack("<QQ", len(text), len(body)) + text + body)
        target.flush()


if __name__ == "__main__":
    main()
