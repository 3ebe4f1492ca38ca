"""Which parameters a bucket of gradients is made of, and which of them may be compressed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from paceline.distributed.reduction import GradientPiece
from paceline.parallelism.mesh import local_tensor

#: A parameter of fewer dimensions is a bias or a norm: small, and sensitive.
LEAST_DIMENSIONS = 2
#: Modules whose own parameters are sent whole whatever their dimensions are: a norm's may have those of a picture.
SENT_WHOLE = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)
#: What torch.compile and checkpoint_wrapper put into the names of parameters, at any depth.
WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module"})


class PieceMaker:
    """Makes the pieces of buckets of one model's gradients.

    Biases, norms, embeddings with whatever is tied to them, and parameters with a name that matches a pattern are not compressible: few of their
    gradients are large, and an embedding's are those of the few tokens in a batch.
    """

    def __init__(self, model: nn.Module, exclude: Sequence[str], suffix: str = "") -> None:
        """`exclude`: patterns as of `fnmatch`. `suffix`: tells parts of a sharded parameter from those of other ranks."""
        self._suffix = suffix
        self._names: dict[int, str] = {}
        whole = {id(each) for module in model.modules() if isinstance(module, SENT_WHOLE) for each in module.parameters(recurse=False)}
        for name, parameter in plain_names(model):
            self._names.setdefault(id(parameter), name)
            if parameter.dim() < LEAST_DIMENSIONS or any(fnmatchcase(name, pattern) for pattern in exclude):
                whole.add(id(parameter))
        self._compressible = self._names.keys() - whole

    @property
    def names(self) -> set[str]:
        """The names of all pieces."""
        return {name + self._suffix for name in self._names.values()}

    def pieces(self, parameters: Iterable[Tensor]) -> list[GradientPiece]:
        """Return the pieces of a flat tensor with the gradients of `parameters`, end to end."""
        found, offset = [], 0
        for parameter in parameters:
            part = local_tensor(parameter)
            name = self._names[id(parameter)] + self._suffix
            found.append(GradientPiece(name, tuple(part.shape), offset, part.numel(), compressible=id(parameter) in self._compressible))
            offset += part.numel()
        return found


def plain_names(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters with every name that they have, a tied one with several, without what wrappers put into names."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield ".".join(part for part in name.split(".") if part not in WRAPPERS), parameter
