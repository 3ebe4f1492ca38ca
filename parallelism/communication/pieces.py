"""Which parameters a bucket of gradients is made of, and which of them may be compressed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from paceline.distributed.reduction import Piece
from paceline.parallelism.mesh import local_tensor

#: A parameter of fewer dimensions is a bias or a norm: small, and sensitive.
LEAST_DIMENSIONS = 2


class PieceMaker:
    """Makes the pieces of buckets of one model's gradients.

    Biases, norms, embeddings with whatever is tied to them, and parameters whose name matches a pattern are not compressible: few of their gradients
    are large, and an embedding's are those of the few tokens in a batch.
    """

    def __init__(self, model: nn.Module, exclude: Sequence[str], suffix: str = "") -> None:
        """`exclude`: patterns as of `fnmatch`. `suffix`: tells parts of a sharded parameter from those of other ranks."""
        self._suffix = suffix
        self._names = {id(parameter): name.replace("_orig_mod.", "") for name, parameter in model.named_parameters()}
        embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
        self._compressible = {
            id(parameter)
            for parameter in model.parameters()
            if parameter.dim() >= LEAST_DIMENSIONS
            and id(parameter) not in embeddings
            and not any(fnmatchcase(self._names[id(parameter)], pattern) for pattern in exclude)
        }

    @property
    def names(self) -> set[str]:
        """The names of all pieces."""
        return {name + self._suffix for name in self._names.values()}

    def pieces(self, parameters: Iterable[Tensor]) -> list[Piece]:
        """Return the pieces of a flat tensor with the gradients of `parameters`, end to end."""
        found, offset = [], 0
        for parameter in parameters:
            part = local_tensor(parameter)
            name = self._names[id(parameter)] + self._suffix
            found.append(Piece(name, tuple(part.shape), offset, part.numel(), compressible=id(parameter) in self._compressible))
            offset += part.numel()
        return found
