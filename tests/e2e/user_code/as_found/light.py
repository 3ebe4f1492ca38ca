import torch, sys, os
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lightning as L
class M(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    def training_step(self, b, i):
        loss = nn.functional.mse_loss(self.net(b[0]), b[1]); self.log("train_loss", loss, prog_bar=True); return loss
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters(), lr=1e-3)
def main():
    L.seed_everything(1)
    x = torch.randn(2048, 20); y = x @ torch.randn(20, 1)
    tr = L.Trainer(accelerator="cpu", devices=int(sys.argv[1]) if len(sys.argv) > 1 else 2, num_nodes=int(sys.argv[2]) if len(sys.argv) > 2 else 1, strategy="ddp", max_epochs=3, default_root_dir="out/light", log_every_n_steps=5)
    tr.fit(M(), DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    print("done", tr.global_rank, tr.world_size, tr.global_step, dict(tr.callback_metrics))
main()
