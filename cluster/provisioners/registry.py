"""Which class starts the nodes of which provider. A class is imported when it is first needed, and its engine's package with it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from paceline.cluster.provisioners.provisioner import Provisioner, ProvisionerContext, ProvisionerError
from paceline.cluster.provisioners.settings import ProviderSettings
from paceline.extras import pip_install

#: By the `type` of the settings: `module:class`. Each is called with (its settings, a ProvisionerContext).
PROVIDERS: Mapping[str, str] = {
    "kubernetes": "paceline.cluster.provisioners.kubernetes:KubernetesProvisioner",
    "manual": "paceline.cluster.provisioners.manual:ManualProvisioner",
    "ray": "paceline.cluster.provisioners.ray:RayProvisioner",
    "slurm": "paceline.cluster.provisioners.slurm:SlurmProvisioner",
    "ssh": "paceline.cluster.provisioners.ssh.provisioner:SshProvisioner",
}
_SETTINGS: TypeAdapter[Any] = TypeAdapter(ProviderSettings)

#: Makes the provisioner of stored settings; tests have one of their own.
ProvisionerFactory = Callable[[Mapping[str, Any], ProvisionerContext], Provisioner]


def parse_settings(document: Mapping[str, Any]) -> Any:
    """The settings of a provider, typed. Raises pydantic's ValidationError."""
    return _SETTINGS.validate_python(document)


def make_provisioner(document: Mapping[str, Any], context: ProvisionerContext) -> Provisioner:
    """The provisioner of stored settings. Raises ProvisionerError where its package is missing, or this version refuses the settings."""
    kind = str(document.get("type"))
    place = PROVIDERS.get(kind)
    if place is None:
        raise ProvisionerError(f"there is no provider {kind!r}", f"use one of {', '.join(sorted(PROVIDERS))}", nothing_began=True)
    module, _, name = place.partition(":")
    try:
        made: Callable[[Any, ProvisionerContext], Provisioner] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        message, remedy = (
            f"the provider {kind} needs a package that the coordinator lacks: {error}",
            f"{pip_install(kind)} there, or build its image with that extra",
        )
        raise ProvisionerError(message, remedy, nothing_began=True) from error
    try:
        settings = parse_settings(document)
    except ValueError as error:
        message = f"the stored settings of the provider {kind} are refused by this version: {error}"
        raise ProvisionerError(message, nothing_began=True) from error
    return made(settings, context)
