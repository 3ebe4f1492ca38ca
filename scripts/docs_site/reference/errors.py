"""The page of errors: each code of the REST interface with its status, its meaning and what to do."""

from __future__ import annotations

from paceline.api.errors import CATALOGUE

OPENING = """# Errors

Every refusal of the coordinator is a document of the type `application/problem+json` (RFC 9457). Its `code` is one of these, its `detail` names the
value, the limit and the way out, and its `type` leads here. The dashboard and the command line show the same codes. Quote the `request_id` in a
report: the coordinator's log has it.

"""


def page() -> str:
    return OPENING + "".join(
        f"## {kind.title} {{ #{code} }}\n\n`{code}`, status {kind.status}. {kind.remedy}\n\n" for code, kind in CATALOGUE.items()
    )
