"""The `communication` section: how gradients are summed over the replicas. Pure pydantic, no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from paceline.distributed.collectives.options import ALGORITHMS, Algorithm
from paceline.training.schema.parts import Part, Real, Text, Whole, inconsistent, shown

MOST_PATTERNS = 64
#: Beyond it two factors are seldom smaller than the matrix.
MOST_RANK = 64
MOST_BUCKET_MB = 4096.0
MOST_DENSE_STEPS = 1_000_000


class Communication(Part):
    """How gradients are sent. Any value but the defaults makes the job not reproducible to the last bit; `top_k` and `power_sgd` change what it learns too."""

    algorithm: Literal[Algorithm, "auto"] = Field(
        "backend",
        description="How gradients are summed over the replicas. backend: by Gloo or NCCL. ring: over a ring of Paceline's own, machine "
        "by machine. hierarchical: within each machine, then between machines with equally many ranks, else as ring. auto: "
        "measure, then use the fastest. On GPUs NCCL makes exact sums by itself, for it knows the links; hierarchical matters "
        "there with a compression.",
    )
    compression: Literal["none", "bf16", "fp16", "top_k", "power_sgd", "auto"] = Field(
        "none",
        description="Compress gradients sent between replicas. bf16, fp16: half the bytes, rounded. top_k: only the largest elements. "
        "power_sgd: two thin factors of each matrix. What top_k and power_sgd leave out is added to the next step (error "
        "feedback). auto: measure, then use the faster of none and bf16, with lossy also of top_k and power_sgd.",
    )
    lossy: bool = Field(
        False,
        description="compression auto: may use top_k and power_sgd too, which learn slower per step, and stops if the loss suffers.",
    )
    ratio: Real = Field(0.01, gt=0, le=1, description="top_k: share of the elements sent in a step.")
    threshold: Literal["exact", "sampled"] = Field(
        "sampled",
        description="top_k: find the largest elements by comparing all of them (exact) or by estimating the limit from a sample (sampled).",
    )
    rank: Whole = Field(2, ge=1, le=MOST_RANK, description="power_sgd: columns of each factor.")
    dense_steps: Whole = Field(
        10,
        ge=0,
        le=MOST_DENSE_STEPS,
        description="top_k, power_sgd: send the gradients of this many first steps uncompressed, while they change most.",
    )
    exclude: Annotated[tuple[Annotated[Text, Field(min_length=1, max_length=200)], ...], FailFast()] = Field(
        (),
        max_length=MOST_PATTERNS,
        description="top_k, power_sgd: send these parameters uncompressed. Patterns such as head.*. Biases, norms and embeddings always "
        "are.",
    )
    bucket_mb: Real | None = Field(
        None,
        gt=0,
        le=MOST_BUCKET_MB,
        description="ddp: MiB of gradients sent together. Default: torch's 25 after a first bucket of 1, or a size that is measured to be "
        "faster in the job's first steps.",
    )
    static_graph: bool = Field(
        False,
        description="ddp: set if every step uses the same parameters, of which some may never be used. DDP finds them once, or in each "
        "step where a rank has several micro-batches. It is never chosen for you: only the model's author knows.",
    )

    @model_validator(mode="before")
    @classmethod
    def _auto_in_one_word(cls, given: Any) -> Any:
        if isinstance(given, str):
            if given != "auto":
                raise inconsistent(f"communication={shown(given)} is no section: write auto, or one such as {{compression: bf16}}")
            return {"algorithm": "auto", "compression": "auto"}
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"const": "auto", "type": "string"}, super().__get_pydantic_json_schema__(schema, handler)]}

    @property
    def is_auto(self) -> bool:
        """Whether something is to be chosen by measurement."""
        return "auto" in (self.algorithm, self.compression)

    @property
    def leaves_out(self) -> bool:
        """Whether sums may leave something out that is to be remembered."""
        return self.compression in ("top_k", "power_sgd") or (self.compression == "auto" and self.lossy)

    @property
    def compresses(self) -> bool:
        return self.compression != "none"

    def algorithms_on(self, device: Literal["cpu", "cuda"]) -> frozenset[Algorithm]:
        """Return the algorithms that sums apart from the backend's own may use; none where the backend sums by itself. On GPUs NCCL does, unless
        gradients are compressed, and rings of Paceline's own are for the host alone."""
        found: frozenset[Algorithm] = frozenset(ALGORITHMS if self.algorithm == "auto" else (self.algorithm,))
        if device == "cuda":
            return found - {"ring"} if self.compresses else frozenset()
        return found if self.compresses or found != {"backend"} else frozenset()
