"""Lightning's Trainer as its documentation has it: a module, a callback that prints, and checkpoints to go on from."""

import os
import sys
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sines(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Printer(L.Callback):
    def __init__(self, pause):
        self.pause = pause

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        time.sleep(self.pause)
        if trainer.is_global_zero:
            print(f"step {trainer.global_step - 1} loss {outputs['loss'].item():.8f}", flush=True)


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    L.seed_everything(0, verbose=False)
    inputs = torch.randn(256, 8)
    pairs = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = L.Trainer(
        accelerator="cpu",
        devices=local,
        num_nodes=int(os.environ["WORLD_SIZE"]) // local,
        strategy="ddp",
        max_epochs=3,
        log_every_n_steps=4,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Printer(pause), ModelCheckpoint(dirpath="checkpoints", save_last=True)],
    )
    last = "checkpoints/last.ckpt"
    data = DataLoader(pairs, batch_size=16, shuffle=True)
    trainer.fit(Sines(), data, DataLoader(pairs, batch_size=64), ckpt_path=last if os.path.exists(last) else None)


if __name__ == "__main__":
    main()
