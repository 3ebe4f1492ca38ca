# As in PyTorch's "Getting started with DDP" and "examples/distributed/ddp-tutorial-series/multigpu_torchrun.py"
import argparse, os, time
import torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--snapshot", default="out/snapshot.pt")
    p.add_argument("--sleep", type=float, default=0.0)
    a = p.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    print("env", {k: os.environ.get(k) for k in sorted(os.environ) if k.startswith(("RANK","WORLD","LOCAL","GROUP","ROLE","MASTER","TORCHELASTIC","PACELINE","OMP","PYTHONPATH","VIRTUAL","GLOO","NCCL","TORCH"))}, "cwd", os.getcwd(), flush=True)
    torch.manual_seed(0)
    x = torch.randn(4096, 20); y = x @ torch.randn(20, 1) + 0.1 * torch.randn(4096, 1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    dl = DataLoader(ds, batch_size=32, sampler=sampler, num_workers=1)
    model = DDP(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    start = 0
    if os.path.exists(a.snapshot):
        s = torch.load(a.snapshot); model.module.load_state_dict(s["MODEL_STATE"]); start = s["EPOCHS_RUN"]
        print(f"Resuming training from snapshot at Epoch {start}")
    for e in range(start, a.epochs):
        sampler.set_epoch(e)
        for bx, by in dl:
            opt.zero_grad(); loss = nn.functional.mse_loss(model(bx), by); loss.backward(); opt.step()
            if a.sleep: time.sleep(a.sleep)
        print(f"[rank {rank}] Epoch {e} | Batchsize: 32 | Steps: {len(dl)} | loss {loss.item():.4f}")
        if rank == 0:
            os.makedirs(os.path.dirname(a.snapshot), exist_ok=True)
            torch.save({"MODEL_STATE": model.module.state_dict(), "EPOCHS_RUN": e + 1}, a.snapshot)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
