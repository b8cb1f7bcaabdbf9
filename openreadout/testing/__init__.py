"""Contract tests that any plugin can run on itself; they need the extra `testing`.

`reader_checks` and `codec_checks` give pairs of a name and a function without arguments, ready for
`pytest.mark.parametrize`; `docs/testing.md` shows how. What a check finds wrong is an `AssertionError`.
"""

from __future__ import annotations

from openreadout.testing.cases import Case, find_cases, matches
from openreadout.testing.codecs import CodecExample, codec_checks
from openreadout.testing.readers import reader_checks

__all__ = ["Case", "CodecExample", "codec_checks", "find_cases", "matches", "reader_checks"]
