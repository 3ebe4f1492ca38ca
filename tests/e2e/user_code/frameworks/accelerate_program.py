"""As the documentation of Accelerate has it, with its TensorBoard tracker: nothing in here knows of Paceline."""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=sys.argv[1])
inputs = torch.randn(640, 8)
data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
accelerator.init_trackers("run", config={"lr": 1e-2})
for step, (batch, targets) in enumerate(data, start=1):
    loss = nn.functional.mse_loss(model(batch), targets)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.log({"train_loss": loss.item(), "lr": 1e-2}, step=step)
accelerator.end_training()
