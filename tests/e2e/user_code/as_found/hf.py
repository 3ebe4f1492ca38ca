import os, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
set_seed(0)
cfg = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(cfg)
class DS(torch.utils.data.Dataset):
    def __len__(self): return 512
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i); t = (torch.arange(32) + torch.randint(0, 128, (1,), generator=g)) % 128
        return {"input_ids": t, "labels": t}
log = os.environ.get("PACELINE_LOG_DIR")
print("PACELINE_LOG_DIR", log, "cwd", os.getcwd(), flush=True)
if log: os.environ["TENSORBOARD_LOGGING_DIR"] = log
args = TrainingArguments(output_dir=os.environ.get("OUT", "out/hf"), per_device_train_batch_size=8, num_train_epochs=4, logging_steps=5, save_steps=20, use_cpu=True, report_to=["tensorboard"], learning_rate=3e-3, dataloader_num_workers=0)
t = Trainer(model=model, args=args, train_dataset=DS())
last = os.path.isdir(args.output_dir) and any(d.startswith("checkpoint") for d in os.listdir(args.output_dir))
t.train(resume_from_checkpoint=last or None)
print("done rank", args.process_index, "world", args.world_size, t.state.global_step, t.state.log_history[-1])
