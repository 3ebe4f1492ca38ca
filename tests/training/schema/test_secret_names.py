"""Names of variables that hold secrets are told from those of settings, and values that cannot be secrets are passed over."""

from __future__ import annotations

from paceline.training.schema.secret_names import names_a_secret, readable_secrets


def test_secrets_are_told_from_settings_by_their_names() -> None:
    secret = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "wandb_api_key", "DB_PASSWORD", "GIT_AUTH", "TOKENIZER_API_KEY")
    assert [name for name in secret if not names_a_secret(name)] == []
    harmless = ("TOKENIZERS_PARALLELISM", "TOKENIZER", "NCCL_DEBUG", "HF_HOME", "KEYBOARD", "AUTHOR")
    assert [name for name in harmless if names_a_secret(name)] == []


def test_numbers_switches_and_paths_are_no_secrets() -> None:
    variables = {"MAX_TOKENS": "4096", "USE_AUTH_TOKEN": "true", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/gcp.json", "EMPTY_KEY": ""}
    assert readable_secrets(variables) == []
    assert readable_secrets(variables | {"WANDB_API_KEY": "w", "HF_TOKEN": "hf_1", "LR": "0.1"}) == ["HF_TOKEN", "WANDB_API_KEY"]
