"""Where an object store is, for sections of a job spec that name places in one. Never credentials: everybody who sees a job sees its spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from paceline.objects import location
from paceline.objects.client import OPTIONS
from paceline.training.schema.parts import Part, Text, absent, inconsistent

LONGEST_NAME = 256


def _endpoint(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    host = rest.partition("/")[0]
    if scheme not in ("http", "https") or not separator or not host or "@" in host or not value.isprintable():
        raise PydanticCustomError(
            "endpoint", "Input should be http:// or https:// and a host, without credentials, such as https://minio.example:9000"
        )
    return value.rstrip("/")


class ObjectStoreOptions(Part):
    """Facts about the store of a URL that its nodes' environment does not say. Credentials are not among them: nodes bring those."""

    endpoint: Annotated[Text, Field(max_length=LONGEST_NAME), AfterValidator(_endpoint)] | None = Field(
        None,
        description="URL of a store that is not its maker's own, such as MinIO. Default: the node's AWS_ENDPOINT_URL, else the maker's.",
        exclude_if=absent,
    )
    region: Annotated[Text, Field(max_length=LONGEST_NAME)] | None = Field(
        None, description="Region of an s3:// bucket. Default: the node's AWS_REGION, else us-east-1.", exclude_if=absent
    )
    account: Annotated[Text, Field(max_length=LONGEST_NAME)] | None = Field(
        None, description="Storage account of an az:// container. Default: the node's AZURE_STORAGE_ACCOUNT_NAME.", exclude_if=absent
    )

    def for_client(self) -> dict[str, str]:
        """The options that are set, as `ObjectClient` takes them."""
        return {name: str(value) for name, value in self.model_dump().items() if value is not None}


def options_of(options: ObjectStoreOptions | None) -> dict[str, str]:
    """The options as `ObjectClient` takes them, also of a section without any."""
    return options.for_client() if options is not None else {}


def check_place(field: str, text: str | None, options: ObjectStoreOptions | None) -> None:
    """Check that `text` is an absolute path or the URL of a store, and that the options fit it. Raises PydanticCustomError."""
    why = location.refusal(text) if text is not None else None
    if text is not None and why is not None:
        raise inconsistent("{field}={path} {why}", field=field, path=text, why=why)
    is_object = text is not None and location.is_url(text) and not text.startswith("file:")
    given = options_of(options)
    if given and (text is None or not is_object):
        raise inconsistent("{field}={path} is in no object store, so it has no options; leave them out", field=field, path=text)
    if text is not None and is_object and (wrong := sorted(set(given) - set(OPTIONS[location.parse(text).scheme]))):
        raise inconsistent("{field}={path}: a store of this kind has no option {name}; leave it out", field=field, path=text, name=wrong[0])
    if text is not None and is_object and given.get("endpoint", "").startswith("http:") and not text.startswith("s3:"):
        raise inconsistent(
            "{field}={path}: its endpoint {endpoint} would get the credentials in the clear; give an https:// one",
            field=field,
            path=text,
            endpoint=given["endpoint"],
        )
