import re
src = open("hf.py").read()
src = src.replace("t = Trainer(model", '''import paceline, time
from transformers import TrainerCallback
class ToPaceline(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if state.is_world_process_zero:
            paceline.log(state.global_step, **{k: v for k, v in logs.items() if isinstance(v, (int, float))})
    def on_step_end(self, *a, **k): time.sleep(0.4)
t = Trainer(callbacks=[ToPaceline()], model''')
exec(compile(src, "hf.py", "exec"))
