"""From the bytes of a document, in whatever encoding they are, to text that an XML parser takes."""

from __future__ import annotations

import re

from openreadout import limits
from openreadout.errors import CorruptDataError

_DECLARATION = re.compile(r"^\s*<\?xml\b[^>]*\?>", re.ASCII)
_ENCODING = re.compile(rb"^\s*<\?xml\b[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_ILLEGAL_REFERENCE = re.compile(
    r"&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|x0*(?:[0-8bcef]|1[0-9a-f]));", re.IGNORECASE
)
_BARE_AMPERSAND = re.compile(r"&(?!(?:[A-Za-z][A-Za-z0-9]{0,30}|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)")
_ONE_BYTE = {"iso-8859-1", "latin-1", "latin1", "windows-1252", "cp1252", "iso8859-1"}


def decode_document(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Decode a document and strip its declaration, byte order mark, and NULs at the end.

    Parameters
    ----------
    data : bytes
        The document; UTF-8 unless its bytes say otherwise. Single bytes that are not UTF-8 are taken as Latin-1, which
        is how some acquisition programs write the micro sign.

    Returns
    -------
    tuple of str and tuple of str
        The text, and what was mended.

    Raises
    ------
    CorruptDataError
        The document is empty or longer than is accepted.
    """
    if len(data) > limits.MAX_XML_BYTES:
        raise CorruptDataError(
            f"OME-XML of {len(data)} bytes, more than the {limits.MAX_XML_BYTES} that are accepted",
            hint=limits.raised_by("MAX_XML_BYTES", len(data)),
        )
    text, repairs = _decode(data)
    text = text.rstrip("\0 \t\r\n").lstrip("\ufeff \t\r\n\0")
    if not text:
        raise CorruptDataError("the OME-XML document is empty")
    text = _DECLARATION.sub("", text, count=1).lstrip()
    refuse_doctype(text)
    return text, repairs


def _decode(data: bytes) -> tuple[str, tuple[str, ...]]:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace"), ()
    if data[:4] in (b"<\0?\0", b"<\0O\0", b"<\0!\0"):
        return data.decode("utf-16-le", "replace"), ()
    if data[:4] in (b"\0<\0?", b"\0<\0O", b"\0<\0!"):
        return data.decode("utf-16-be", "replace"), ()
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError:
        declared = _ENCODING.match(data[:512])
        name = declared.group(1).decode("ascii").lower() if declared else "utf-8"
        if name in _ONE_BYTE:
            return data.decode("cp1252" if "1252" in name else "latin-1", "replace"), ()
    text = data.decode("utf-8", "surrogateescape")
    mended = re.sub("[\udc80-\udcff]", lambda found: chr(ord(found.group()) - 0xDC00), text)
    return mended, (f"the OME-XML is not valid {name.upper()}; stray bytes were read as Latin-1",)


def refuse_doctype(text: str) -> None:
    """Refuse a document type declaration before the root element: no OME-XML has one, and entities are a weapon."""
    place = 0
    while True:
        if text.startswith("<!--", place):
            end = text.find("-->", place)
        elif text.startswith("<?", place):
            end = text.find("?>", place)
        else:
            break
        if end < 0:
            return
        place = end + (3 if text[end] == "-" else 2)
        while place < len(text) and text[place].isspace():
            place += 1
    if text[place : place + 9].upper() == "<!DOCTYPE":
        raise CorruptDataError(
            "the OME-XML has a document type declaration, which is not accepted",
            hint="OME-XML needs none; the file may have been tampered with",
        )


def mend(text: str) -> tuple[str, tuple[str, ...]]:
    """Remove characters that XML forbids and escape stray ampersands; nothing that changes the document's structure."""
    repairs = []
    for pattern, by, what in (
        (_ILLEGAL, "", "control characters were removed from the OME-XML"),
        (_ILLEGAL_REFERENCE, "", "references to control characters were removed from the OME-XML"),
        (_BARE_AMPERSAND, "&amp;", "stray ampersands in the OME-XML were escaped"),
    ):
        text, count = pattern.subn(by, text)
        if count:
            repairs.append(what)
    return text, tuple(repairs)
