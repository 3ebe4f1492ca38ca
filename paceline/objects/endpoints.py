"""Endpoints of object stores that the coordinator and the agents send their own credentials to.

Whoever submits a job names its store's endpoint. Ranks may use any: their credentials are the job's. The coordinator and the agents have
credentials of their own, and their place in the network: they use the endpoints that their own environment names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from paceline.objects.errors import UnlistedEndpointError

#: Lists further endpoints, for a coordinator and for an agent.
SETTING = "PACELINE_STORE_ENDPOINTS"
#: The stores' own variables: each names one endpoint.
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


def listed_endpoints(environment: Mapping[str, str]) -> frozenset[str]:
    """The endpoints that this environment names."""
    named = [*environment.get(SETTING, "").split(","), *(environment.get(name, "") for name in VARIABLES)]
    return frozenset(_plain(endpoint) for endpoint in named if endpoint.strip())


def require_listed(options: Mapping[str, str], listed: Collection[str]) -> None:
    """Check that a job's options name no endpoint besides the `listed` ones. Raises UnlistedEndpointError."""
    endpoint = options.get("endpoint")
    if endpoint is not None and _plain(endpoint) not in listed:
        raise UnlistedEndpointError(
            f"the job names the endpoint {endpoint}, and this process sends its credentials only where its own environment says: set "
            f"{SETTING}={endpoint}, where it is started, if that store may have them"
        )


def _plain(endpoint: str) -> str:
    return endpoint.strip().rstrip("/")
