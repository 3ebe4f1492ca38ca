"""What torch does not promise is there in the release that is installed, and does what it is used for."""

from __future__ import annotations

import ast
import ctypes
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.futures import Future
from torch.nn import functional as F

from paceline.distributed import torch_private
from paceline.distributed.errors import TorchVersionError
from paceline.distributed.torch_private import (
    AllGather,
    DefaultAllocMixin,
    FailOnRecompileLimitHit,
    FakeTensorMode,
    ReduceScatter,
    TorchDispatchMode,
    tree_leaves,
    tree_map,
)

ROOT = Path(__file__).parents[2]
OURS = "distributed/torch_private.py"
OF_OBJECTS = {"_parameters", "_buffers", "_cdata", "_conv_forward"}


@pytest.mark.parametrize("name", sorted(torch_private.NAMES))
def test_torch_has_it(name: str) -> None:
    assert torch_private.find(name) is not None


def test_what_a_release_lacks_is_told_with_the_release_that_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "NAMES", {"renamed": ("torch", "_foreach_gone_"), "moved": ("torch._gone", "x")})
    for name, where in (("renamed", "torch._foreach_gone_"), ("moved", r"torch._gone\.x")):
        with pytest.raises(TorchVersionError, match=rf"torch \S+ has no {where}; Paceline is tested with torch 2\.13: run `pip install"):
            getattr(torch_private, name)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        torch_private.unheard_of  # noqa: B018


def test_another_release_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    warn = torch_private.warn_if_untested.__wrapped__
    warn()
    monkeypatch.setattr(torch_private, "version", lambda _: "2.14.1+cpu")
    with pytest.warns(RuntimeWarning, match=r"torch 2\.14\.1\+cpu is used; Paceline is tested with torch 2\.13"):
        warn()


def test_the_tested_release_is_the_one_that_is_installed_for_workers() -> None:
    assert f'"torch=={torch_private.TESTED}.*"' in (ROOT / "pyproject.toml").read_text()


def test_importing_it_imports_no_torch() -> None:
    code = "import sys; import paceline.distributed.torch_private; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_it_is_used_nowhere_else() -> None:
    patterns = (
        "monitoring/**/*.py",
        "distributed/**/*.py",
        "parallelism/**/*.py",
        "training/**/*.py",
        "cluster/**/*.py",
        "scripts/**/*.py",
    )
    paths = [path for pattern in (*patterns, "paceline/*.py", "paceline/integrations/*.py") for path in ROOT.glob(pattern)]
    assert ROOT / OURS in paths
    found = [f"{path}:{line} {what}" for path in paths if path != ROOT / OURS for line, what in private_names(ast.parse(path.read_text()))]
    assert found == []


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Those of torch's, as far as the text tells."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            if any(name.startswith("_") for name in names):
                yield node.lineno, f"from {node.module} import {names[-1]}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if (node.attr in OF_OBJECTS and owner != "self") or owner.split(".")[0] in ("torch", "dist", "c10d", "aten", "nn", "F"):
                yield node.lineno, f"{owner}.{node.attr}"


@pytest.mark.parametrize(
    "line",
    [
        "from torch._C import x",
        "from torch import _x",
        "torch._dynamo.config.x = 1",
        "dist.distributed_c10d._world",
        "layer._conv_forward(1)",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert list(private_names(ast.parse(line)))


# -- what each of them does


@pytest.fixture
def solo_group() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_living_groups_are_those_that_are_not_destroyed(solo_group: dist.ProcessGroup) -> None:
    other = dist.new_group([0])
    assert torch_private.living_groups() == [solo_group, other]
    dist.destroy_process_group(other)
    assert torch_private.living_groups() == [solo_group]


class NamedGroup(dist.ProcessGroup):
    def __init__(self) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return "a name"


def test_a_group_of_ours_is_known_by_name_and_ranks(solo_group: dist.ProcessGroup) -> None:
    ours = NamedGroup()
    torch_private.register_group(ours, ours.group_name, [0])
    assert dist.get_process_group_ranks(ours) == [0]
    assert dist.distributed_c10d._resolve_process_group(dist.distributed_c10d.GroupName("a name")) is ours  # type: ignore[attr-defined]


def test_groups_are_aborted_without_an_argument() -> None:
    """What it does to NCCL needs GPUs: `scripts/gpu_check`."""
    bound = inspect.signature(torch_private.find("abort_group")).bind()
    assert bound.arguments == {}


def test_a_work_is_done_with_its_future() -> None:
    future: Future[list[Tensor]] = Future()
    work = torch_private.work_of(future)
    assert not work.is_completed()
    future.set_result([])
    assert work.wait()


def test_a_distributed_tensor_tells_what_is_here(solo_group: dist.ProcessGroup) -> None:
    tensor = DTensor.from_local(torch.ones(3, 2), DeviceMesh("cpu", [0]), [Shard(0)])
    assert torch_private.local_shape_and_offset(tensor) == ((3, 2), (0, 0))
    torch_private.clear_sharding_cache()
    doubled = tensor + tensor
    assert isinstance(doubled, DTensor)
    assert torch.equal(doubled.to_local(), torch.full((3, 2), 2.0))


@pytest.mark.parametrize("mixin", [AllGather, ReduceScatter])
def test_collectives_of_sharded_parameters_allocate_as_torch_does(mixin: type) -> None:
    class Ours(DefaultAllocMixin, mixin):
        def __call__(self, *_: object, **__: object) -> None: ...

    tensor = Ours().allocate((3,), dtype=torch.float64, device=torch.device("cpu"))
    assert (tensor.shape, tensor.dtype) == ((3,), torch.float64)


def test_an_element_is_put_where_it_belongs() -> None:
    state: dict[str, object] = {"optimizer": {"steps": [1, 2]}}
    torch_private.set_element(state, ("optimizer", "steps", 1), 3)
    torch_private.set_element(state, ("epoch",), 4)
    assert state == {"optimizer": {"steps": [1, 3]}, "epoch": 4}


def test_many_tensors_are_changed_in_place() -> None:
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
    torch_private.multiply_each(tensors, 2.0)
    torch_private.multiply_each(tensors, torch.tensor(0.5))
    torch_private.add_to_each(tensors, [torch.tensor([10.0, 20.0]), torch.tensor([30.0])])
    assert [tensor.tolist() for tensor in tensors] == [[11.0, 22.0], [33.0]]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_storage_has_one_key(device: str) -> None:
    tensor, other = torch.empty(4, device=device), torch.empty(4, device=device)
    assert torch_private.storage_key(tensor[2:]) == torch_private.storage_key(tensor) != torch_private.storage_key(other)


def test_parameters_and_buffers_are_a_modules_own() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    assert torch_private.own_parameters(module) == {}
    linear, norm = module
    assert torch_private.own_parameters(linear) == {"weight": linear.weight, "bias": None}
    assert list(torch_private.own_buffers(norm)) == ["running_mean", "running_var", "num_batches_tracked"]
    plain = nn.Parameter(torch.ones(2, 2))
    torch_private.own_parameters(linear).update(weight=plain)
    assert linear.weight is plain


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_a_convolution_with_another_weight_keeps_its_padding(mode: Literal["zeros", "reflect"]) -> None:
    layer, inputs = nn.Conv2d(1, 2, 3, padding=1, padding_mode=mode, bias=False), torch.randn(1, 1, 5, 5)
    assert torch.equal(torch_private.convolve(layer, inputs, layer.weight), layer(inputs))
    assert torch.allclose(torch_private.convolve(layer, inputs, 2 * layer.weight), 2 * layer(inputs))


def test_operations_are_seen_as_they_are_done() -> None:
    seen = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, inputs=(), named=None):
            seen.append(operation)
            return operation(*inputs, **(named or {}))

    with Note():
        torch.ones(2) + 1
    assert torch.ops.aten.add.Tensor in seen


def test_attention_comes_down_to_one_of_the_operations() -> None:
    seen = set()

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, inputs=(), named=None):
            seen.add(operation)
            return operation(*inputs, **(named or {}))

    query = torch.randn(1, 2, 8, 16, requires_grad=True)
    with Note():
        F.scaled_dot_product_attention(query, query, query)
    assert seen & torch_private.attention_operations()


def test_trees_are_those_of_containers() -> None:
    assert tree_leaves({"a": [1, (2,)]}) == [1, 2]
    assert tree_map(lambda leaf: leaf + 1, {"a": [1, (2,)]}) == {"a": [2, (3,)]}


def test_fake_tensors_have_shapes_alone() -> None:
    with FakeTensorMode():
        product = torch.ones(1 << 20, 1 << 20) @ torch.ones(1 << 20, 3)
    assert product.shape == (1 << 20, 3)


def test_the_compiler_heeds_its_options() -> None:
    config = torch_private.find("compiler_config")
    with config.patch(optimize_ddp=True, recompile_limit=5):  # of these, pytest's monkeypatch leaves nothing behind
        torch.compiler.config.recompile_limit = 3
        torch_private.keep_blocks_whole()
        assert (config.optimize_ddp, config.recompile_limit) == (False, 3)
    assert issubclass(FailOnRecompileLimitHit, Exception)


def test_the_allocator_tells_of_memory_taken_and_given_back() -> None:
    with profile(profile_memory=True) as recorded:
        torch.empty(1000)
    events = list(recorded.kineto_results.experimental_event_tree())
    for event in events:  # those inside others come to its end
        events += event.children
    assert [event.extra_fields.alloc_size for event in events if torch_private.is_allocation(event)] in ([4000, -4000], [-4000, 4000])


def test_the_table_of_blocks_is_kept() -> None:
    torch_private.keep_table_of_blocks()
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    assert ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage").value
