"""A small GAN: two models, two optimizers, gradients averaged by DDP. It saves nothing: a restart begins anew."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
dist.init_process_group(backend="gloo")
rank = dist.get_rank()
torch.manual_seed(7)
generator = DDP(nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2)))
critic = DDP(nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)), broadcast_buffers=False)
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
binary = nn.BCEWithLogitsLoss()
torch.manual_seed(100 + rank)
for step in range(20):
    angle = torch.rand(32) * 2 * torch.pi
    real = torch.stack([angle.cos(), angle.sin()], dim=1)
    fake = generator(torch.randn(32, 4))

    of_critic.zero_grad(set_to_none=True)
    judged = critic(torch.cat([real, fake.detach()]))
    loss_of_critic = binary(judged, torch.cat([torch.ones(32, 1), torch.zeros(32, 1)]))
    loss_of_critic.backward()
    of_critic.step()

    of_generator.zero_grad(set_to_none=True)
    loss_of_generator = binary(critic.module(fake), torch.ones(32, 1))
    loss_of_generator.backward()
    of_generator.step()
    time.sleep(pause)
    if rank == 0:
        print(f"step {step} loss {loss_of_generator.item():.8f} critic {loss_of_critic.item():.8f}", flush=True)
dist.destroy_process_group()
