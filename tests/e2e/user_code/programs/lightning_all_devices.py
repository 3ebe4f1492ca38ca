"""Lightning's Trainer with the devices and the nodes that its arguments say; else with as many devices as it finds."""

import sys

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sums(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def on_train_batch_end(self, outputs, batch, index):
        if self.trainer.is_global_zero:
            print(f"step {index} loss {outputs['loss'].item():.8f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)


L.seed_everything(0, verbose=False)
inputs = torch.randn(64, 8)
devices, nodes = map(int, sys.argv[1:]) if sys.argv[1:] else ("auto", 1)
trainer = L.Trainer(
    accelerator="cpu",
    devices=devices,
    num_nodes=nodes,
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Sums(), DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8))
print(f"rank {trainer.global_rank} of {trainer.world_size}", flush=True)
