# HF Accelerate "quick tour" loop, with save_state/load_state and trackers
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator
from accelerate.utils import set_seed, ProjectConfiguration
out = os.environ.get("OUT", "out/acc")
acc = Accelerator(gradient_accumulation_steps=2, log_with="tensorboard" if "--tb" in sys.argv else None, project_config=ProjectConfiguration(project_dir=out, automatic_checkpoint_naming=True, total_limit=3))
set_seed(1)
print(acc.state, flush=True)
x = torch.randn(2048, 20); y = x @ torch.randn(20, 1)
dl = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, .1, 200)
model, opt, dl, sched = acc.prepare(model, opt, dl, sched)
if "--tb" in sys.argv: acc.init_trackers("run")
step = 0
for epoch in range(3):
    for bx, by in dl:
        with acc.accumulate(model):
            loss = nn.functional.mse_loss(model(bx), by)
            acc.backward(loss)
            if acc.sync_gradients: acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step(); sched.step(); opt.zero_grad()
        step += 1
        acc.log({"loss": loss.item()}, step=step)
    acc.save_state()
    g = acc.gather_for_metrics(loss.detach().reshape(1))
    acc.print("epoch", epoch, "steps", step, "loss of ranks", g.tolist())

acc.wait_for_everyone()
acc.print("saved", sorted(os.listdir(out + "/checkpoints")))
acc.end_training()
