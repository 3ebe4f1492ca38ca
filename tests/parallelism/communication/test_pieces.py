from __future__ import annotations

from torch import Tensor, nn

from paceline.parallelism.communication.pieces import PieceMaker


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.body, self.norm = nn.Embedding(10, 4), nn.Linear(4, 4), nn.LayerNorm(4)
        self.head, self.extra = nn.Linear(4, 10, bias=False), nn.Linear(4, 2, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, indices: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.body(self.tokens(indices))))
        return out


def test_matrices_are_compressible_and_embeddings_norms_biases_and_what_is_excluded_are_not() -> None:
    model = Tied()
    pieces = PieceMaker(model, ["extra.*"]).pieces(model.parameters())
    assert {piece.name for piece in pieces if piece.compressible} == {"body.weight"}
    assert [piece.name for piece in pieces] == [name for name, _ in model.named_parameters()]


class OfTwoDimensions(nn.Module):
    """Norms over rows and columns, as of pictures, and a sum of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.layer, self.root = nn.EmbeddingBag(10, 4), nn.LayerNorm((4, 4)), nn.RMSNorm((4, 4))
        self.body = nn.Conv2d(1, 2, 3)


def test_norms_and_embeddings_are_told_by_what_they_are_and_not_by_their_dimensions() -> None:
    model = OfTwoDimensions()
    pieces = PieceMaker(model, []).pieces(model.parameters())
    assert {piece.name for piece in pieces if piece.compressible} == {"body.weight"}


def test_a_tied_parameter_is_excluded_by_any_of_its_names() -> None:
    model = Tied()
    model.copy = model.body
    pieces = PieceMaker(model, ["copy.*"]).pieces(model.parameters())
    assert not {piece.name for piece in pieces if piece.compressible} & {"body.weight", "copy.weight"}


def test_pieces_lie_end_to_end() -> None:
    model = Tied()
    offset = 0
    for piece, parameter in zip(PieceMaker(model, []).pieces(model.parameters()), model.parameters(), strict=True):
        assert (piece.offset, piece.length, piece.shape, piece.is_whole) == (offset, parameter.numel(), tuple(parameter.shape), True)
        offset += piece.length


class Compiled(nn.Module):
    """Has the name in it that torch.compile gives to what it wraps."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    model = Tied()
    plain = PieceMaker(model, []).names
    model.body = Compiled(model.body)  # type: ignore[assignment]
    assert "body._orig_mod.weight" in dict(model.named_parameters())
    assert PieceMaker(model, []).names == plain
    pieces = PieceMaker(model, ["body.weight"]).pieces(model.parameters())
    assert "body.weight" not in {piece.name for piece in pieces if piece.compressible}
