"""A process's own credentials go where its environment says, whatever a job's spec names."""

from __future__ import annotations

import pytest

from paceline.objects.client import ObjectClient
from paceline.objects.endpoints import listed_endpoints, require_listed
from paceline.objects.errors import ObjectStoreError, UnlistedEndpointError
from paceline.objects.location import parse


def test_the_environment_lists_endpoints_and_the_stores_own_variables_count() -> None:
    listed = listed_endpoints(
        {"PACELINE_STORE_ENDPOINTS": "https://minio.example:9000/, http://ceph", "AWS_ENDPOINT_URL": "https://s3.example", "HOME": "/root"}
    )
    assert listed == {"https://minio.example:9000", "http://ceph", "https://s3.example"}
    assert listed_endpoints({}) == frozenset()
    for endpoint in listed:
        require_listed({"endpoint": endpoint}, listed)
    require_listed({"region": "eu"}, frozenset())


@pytest.mark.parametrize(
    "endpoint", ["https://evil.example", "http://minio.example", "https://minio.example:9000", "https://minio.example@x"]
)
def test_another_endpoint_is_refused_with_the_setting(endpoint: str) -> None:
    with pytest.raises(UnlistedEndpointError, match=f"set PACELINE_STORE_ENDPOINTS={endpoint}, "):
        require_listed({"endpoint": endpoint}, {"https://minio.example"})


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("s3://bucket/runs", {"region": "x.evil.example/"}),
        ("s3://bucket/runs", {"region": "@evil.example"}),
        ("az://container/runs", {"account": "evil.example/"}),
    ],
)
def test_a_region_or_an_account_leads_to_no_other_host(place: str, options: dict[str, str]) -> None:
    """Both become a part of the host's name."""
    with pytest.raises(ObjectStoreError, match="one has letters, digits"):
        ObjectClient(parse(place), options)
