import torch, sys
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from lightning.fabric import Fabric
def main():
    fabric = Fabric(accelerator="cpu", devices=int(sys.argv[1]) if len(sys.argv) > 1 else 2, num_nodes=int(sys.argv[2]) if len(sys.argv) > 2 else 1, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(1)
    print("fabric", fabric.global_rank, fabric.world_size, type(fabric._strategy.cluster_environment).__name__, flush=True)
    x = torch.randn(2048, 20); y = x @ torch.randn(20, 1)
    dl = fabric.setup_dataloaders(DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, opt = fabric.setup(model, opt)
    for e in range(3):
        for bx, by in dl:
            opt.zero_grad(); loss = nn.functional.mse_loss(model(bx), by); fabric.backward(loss); opt.step()
        fabric.print("epoch", e, "loss", fabric.all_reduce(loss).item())
    fabric.save("out/fabric.ckpt", {"model": model, "opt": opt})
main()
