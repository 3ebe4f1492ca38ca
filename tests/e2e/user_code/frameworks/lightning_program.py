"""As the documentation of Lightning has it: nothing in here knows of Paceline. Arguments: output folder, devices, nodes."""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def _loss(self, batch):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def training_step(self, batch, number):
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


inputs = torch.randn(640, 8)
pairs = TensorDataset(inputs, inputs.sum(1, keepdim=True))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(sys.argv[2]),
    num_nodes=int(sys.argv[3]),
    strategy="ddp",
    max_epochs=2,
    log_every_n_steps=5,
    default_root_dir=sys.argv[1],
    enable_progress_bar=False,
    callbacks=[LearningRateMonitor()],
)
trainer.fit(Line(), DataLoader(pairs, batch_size=16, shuffle=True), DataLoader(pairs, batch_size=64))
