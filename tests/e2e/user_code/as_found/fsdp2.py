import os, sys, time, torch, torch.nn as nn, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
import paceline
CK = os.environ.get("CK", "out/dcp")
class App(Stateful):
    def __init__(self, m, o): self.m, self.o, self.step = m, o, 0
    def state_dict(self):
        m, o = get_state_dict(self.m, self.o); return {"model": m, "optim": o, "step": self.step}
    def load_state_dict(self, s):
        set_state_dict(self.m, self.o, model_state_dict=s["model"], optim_state_dict=s["optim"]); self.step = s["step"]
dist.init_process_group("cpu:gloo"); rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)], nn.Linear(64, 1))
for l in model: fully_shard(l, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
app = App(model, opt)
last = max((int(d) for d in (os.listdir(CK) if os.path.isdir(CK) else []) if os.path.exists(f"{CK}/{d}/.metadata")), default=None)
if last is not None: dcp.load({"app": app}, checkpoint_id=f"{CK}/{last}"); print("resumed", app.step, flush=True)
g = torch.Generator().manual_seed(rank); fut = None
N = int(sys.argv[1]) if len(sys.argv) > 1 else 60
while app.step < N:
    x = torch.randn(64, 64, generator=g); loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad(); loss.backward(); n = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step(); app.step += 1
    if rank == 0: paceline.log(app.step, loss=loss.item(), grad_norm=n.full_tensor().item() if False else 0.0)
    time.sleep(float(os.environ.get("SLEEP", 0)))
    if app.step % 20 == 0:
        dcp.save({"app": app}, checkpoint_id=f"{CK}/{app.step}")
        if rank == 0: print("saved", app.step, flush=True)
print("rank", rank, "done", app.step, loss.item())
dist.destroy_process_group()
