"""Which exceptions tell of a lost rank: those raised where ranks talk to each other, and none that a user's own connection raises."""

from __future__ import annotations

import socket

import pytest
import torch.distributed as dist

from paceline.training.reporting.failures import describe_script, kind_of
from paceline.training.reporting.lost_peers import is_lost_peer
from paceline.training.reporting.users_code import raised_in

TORCH = "/v/lib/python3.11/site-packages/torch"
USERS = "/home/me/train.py"
CLOSED = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:15784. This is typically"
    " caused by a remote worker crashing. Check the logs of the remote worker before reporting an error. GLHF!"
)
RESET = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:5320: Connection reset by peer."
#: As torch 2.13 words them on two gloo ranks of which one has gone; those of NCCL by its sources.
OF_PEERS = [
    ("RuntimeError", CLOSED, f"{TORCH}/distributed/distributed_c10d.py"),
    ("RuntimeError", RESET, f"{TORCH}/nn/parallel/distributed.py"),
    ("RuntimeError", RESET, f"{TORCH}/autograd/graph.py"),
    ("RuntimeError", RESET, f"{TORCH}/_ops.py"),  # a functional collective
    ("RuntimeError", RESET, USERS),  # `work.wait()`
    ("RuntimeError", f"Got the following error when running the callback: RuntimeError: {RESET}", USERS),
    ("RuntimeError", "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation", USERS),
    ("torch.distributed.DistNetworkError", "Failed to recv, got 0 bytes. Connection was likely closed.", USERS),
    ("DistNetworkError", "Failed to recv, got 0 bytes. Connection was likely closed.", ""),  # by torch's `record`
    ("torch.distributed.DistStoreError", "Timed out after 31 seconds waiting for clients. 1/2 clients joined.", f"{TORCH}/x.py"),
    (
        "torch.distributed.DistBackendError",
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error",
        USERS,
    ),
    ("RuntimeError", "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:121, ncclRemoteError: a peer", USERS),
    ("torch.distributed.DistBackendError", "NCCL communicator was aborted on rank 1.", USERS),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer", "/w/paceline/distributed/store_client.py"),
    (
        "RuntimeError",
        "PeerLostError: rank 1 is gone; scatter 3 of step 7 is due\n\nAt:\n  /w/paceline/distributed/x.py(9)",
        f"{TORCH}/autograd/graph.py",
    ),
]


@pytest.mark.parametrize(("exception", "message", "raised_in"), OF_PEERS)
def test_an_error_of_communication_between_ranks_tells_of_a_lost_one(exception: str, message: str, raised_in: str) -> None:
    assert is_lost_peer(exception, message, raised_in, 2)
    assert not is_lost_peer(exception, message, raised_in, 1)  # there is no other rank


@pytest.mark.parametrize(
    ("exception", "message", "raised_in"),
    [
        ("requests.exceptions.ConnectionError", "HTTPConnectionPool(...): [Errno 111] Connection refused", "/v/requests/adapters.py"),
        ("redis.exceptions.ConnectionError", "Error 111 connecting to localhost:6379. Connection refused.", "/v/redis/connection.py"),
        ("ConnectionRefusedError", "[Errno 111] Connection refused", USERS),
        ("BrokenPipeError", "[Errno 32] Broken pipe", USERS),
        ("RuntimeError", "Read error at offset 12 of shard 3", USERS),
        ("RuntimeError", "Timed out waiting for lock", USERS),
        ("RuntimeError", "gloo/x: Connection closed by peer", USERS),
        ("BrokenPipeError", "[Errno 32] Broken pipe", f"{TORCH}/distributed/checkpoint/filesystem.py"),
        ("torch.distributed.DistNetworkError", "The server socket has failed to listen: EADDRINUSE", USERS),
        ("torch.distributed.DistBackendError", "NCCL error in: ../c10d/NCCLUtils.cpp:77, invalid usage: Duplicate GPU", USERS),
    ],
)
def test_a_connection_of_the_users_own_is_no_rank(exception: str, message: str, raised_in: str) -> None:
    """A script whose data server refused the connection had "lost the connection to another rank", and the innocent one was blamed."""
    assert not is_lost_peer(exception, message, raised_in, 2)


def refused() -> Exception:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError) as caught:
            socket.create_connection(closed.getsockname())
    return caught.value


def test_an_exceptions_own_traceback_decides() -> None:
    """Its innermost frame is the standard library's, which serves everyone."""
    assert kind_of(refused(), 2) == "exception"
    assert describe_script(refused(), 0, world_size=2).kind == "exception"


def test_a_real_error_of_torchs_store_is_a_lost_peer_in_a_world_of_several() -> None:
    with pytest.raises(dist.DistError) as caught:
        raise dist.DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed.")
    assert (kind_of(caught.value, 2), kind_of(caught.value, 1)) == ("peer_lost", "exception")
    assert describe_script(caught.value, 0, world_size=2).kind == "peer_lost"


def test_the_innermost_frame_of_a_text_is_that_of_its_last_traceback() -> None:
    first = f'Traceback (most recent call last):\n  File "{TORCH}/distributed/distributed_c10d.py", line 3, in recv\nRuntimeError: x\n'
    second = f'Traceback (most recent call last):\n  File "{USERS}", line 3, in get\n  File "/usr/lib/python3.11/socket.py", line 8, in x\n'
    assert raised_in(f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{second}OSError: y") == USERS
    assert raised_in("no traceback") == ""
