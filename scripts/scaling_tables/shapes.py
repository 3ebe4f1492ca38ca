"""The models of published tables as the planner sees them: built from the shapes that jobs have, at the sizes that the tables state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from paceline.parallelism.model_shape import CUDA, Layer, ModelShape, NumberFormats
from paceline.parallelism.planning.cost.published import PublishedStep
from paceline.training.models.decoder import Decoder
from paceline.training.models.hf.shape import decoder_of
from paceline.training.models.hf.sizes import LLAMA_LIKE, Config
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.models.resnet.shape import imagenet_shape

IMAGE_SIDE, IMAGENET_CLASSES = 224, 1000
#: From the config.json of Llama 3.1 (Dubey et al. 2024, table 3).
LLAMAS: Mapping[str, Config] = {
    "Llama 3.1 8B": {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "Llama 3.1 70B": {"hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "Llama 3.1 405B": {"hidden_size": 16_384, "intermediate_size": 53_248, "num_hidden_layers": 126, "num_attention_heads": 128},
}
#: BERT-base (Devlin et al. 2019): an ungated feed-forward of 3,072 has as many weights and operations as a gated one of 2,048.
BERT_BASE = Decoder(
    context=128, vocabulary=30_522, layers=12, dim=768, heads=12, queries=768, keys=768, width=2048, vectors=2 * 768, tied=True, dropout=0.1
)
#: Makes the shape of a row's model; the number: how often attention's products count, whose rate may be another.
MakeShape = Callable[[PublishedStep, NumberFormats, float], ModelShape]


def shape_of(row: PublishedStep, attention: float = 1.0) -> ModelShape:
    """Return the shape of a row's model. `attention`: the rate of other products over that of attention's, so that one rate does for both."""
    return MODELS[row.model](row, NumberFormats(row.precision, CUDA), attention)


def llama(row: PublishedStep, numbers: NumberFormats, attention: float) -> ModelShape:
    config = {"model_type": "llama", "vocab_size": 128_256, "num_key_value_heads": 8, **LLAMAS[row.model]}
    decoder = replace(
        decoder_of(LLAMA_LIKE["llama"].of(config), row.context), parts_have_sequences=False
    )  # torchtitan cuts them, as our GPT does
    return weigh_attention(decoder, in_bf16(decoder.shape(numbers)), attention)


def bert(row: PublishedStep, numbers: NumberFormats, attention: float) -> ModelShape:
    return weigh_attention(BERT_BASE, BERT_BASE.shape(numbers), attention)


def resnet50(row: PublishedStep, numbers: NumberFormats, attention: float) -> ModelShape:
    model = ResnetModel.model_validate({"kind": "resnet", "num_layers": 50})
    return imagenet_shape(model, numbers, IMAGE_SIDE, IMAGENET_CLASSES)


def in_bf16(shape: ModelShape) -> ModelShape:
    """Return the shape with a residual stream of two bytes an element, as where parameters are cast, in place of autocast's four."""
    return replace(shape, layers=tuple(replace(each, input=each.input // 2, checkpoint=each.checkpoint // 2) for each in shape.layers))


def weigh_attention(decoder: Decoder, shape: ModelShape, weight: float) -> ModelShape:
    """Return the shape with the products of attention, which are no products with weights, counted `weight` times."""
    of_weights = 2 * decoder.context * decoder.matrices

    def weighed(layer: Layer) -> Layer:
        return replace(layer, flops=of_weights + round(weight * (layer.flops - of_weights))) if layer.is_block else layer

    return replace(shape, layers=tuple(map(weighed, shape.layers)))


MODELS: Mapping[str, MakeShape] = {**dict.fromkeys(LLAMAS, llama), "BERT-base": bert, "ResNet-50": resnet50}
