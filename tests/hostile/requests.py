"""Requests that somebody sends who is careless or means harm: each with a name, who sends it, and what it may be answered with."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JOBS, PLAN, ME = "/api/v1/training/jobs", "/api/v1/training/plan", "/api/v1/auth/me"
YAML, JSON = "application/yaml", "application/json"
SPEC: dict[str, Any] = {
    "name": "hostile",
    "model": {"kind": "gpt", "layers": 2, "dim": 64, "heads": 2},
    "data": {"kind": "stdlib_text"},
    "optimizer": {"kind": "adamw"},
    "training": {"steps": 10},
}


@dataclass(frozen=True)
class Hostile:
    """`known`: sent with an API key. `refused`: the statuses that are right; a 2xx is right where it is empty. `code`: the one that is right, where it is
    given. `hosts`: the Host headers, where they are not the one that is right."""

    name: str
    method: str
    path: str
    body: bytes = b""
    type: str = ""
    known: bool = True
    refused: tuple[int, ...] = ()
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] | None = None


def bomb(levels: int, width: int = 9) -> bytes:
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


def with_(path: str, raw: str) -> bytes:
    """The plain spec with one value, as its JSON."""
    document = json.loads(json.dumps(SPEC))
    *parts, last = path.split(".")
    here = document
    for part in parts:
        here = here.setdefault(part, {})
    here[last] = "@@"
    return json.dumps(document).replace('"@@"', raw).encode()


def cursor(*key: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def spec_with(path: str, raw: str, name: str, *, verb: str = PLAN) -> Hostile:
    return Hostile(f"{name} as {path}", "POST", verb, with_(path, raw), JSON, refused=(422,))


def hf(raw: str, name: str) -> Hostile:
    body = with_("model", '{"kind": "hf", "config": {"model_type": "llama", ' + raw + "}}")
    return Hostile(f"{name} in a configuration", "POST", PLAN, body, JSON, refused=(400, 422))


STRANGERS = (
    Hostile("an alias bomb from nobody", "POST", PLAN, bomb(9), YAML, known=False, refused=(401,)),
    Hostile("a megabyte of YAML from nobody", "POST", JOBS, b"k: [1, 2, {a: b}]\n" * 60_000, YAML, known=False, refused=(401,)),
    Hostile("YAML in a GET from nobody", "GET", JOBS, bomb(9), YAML, known=False, refused=(401,)),
    Hostile("deep JSON from nobody", "POST", JOBS, b"[" * 60_000, JSON, known=False, refused=(401,)),
    Hostile("a path with NUL", "GET", "/assets/%00", known=False, refused=(400,)),
    Hostile("a path that no file can have", "GET", "/assets/" + "a" * 4000, known=False, refused=(404,)),
    Hostile("an address of 60 kB", "GET", "/" + "a" * 60_000, known=False, refused=(414,), code="address_too_long"),
    Hostile("a path out of the dashboard", "GET", "/assets/%2e%2e/%2e%2e/%2e%2e/etc/host.conf", known=False, refused=(404,)),
    Hostile("a join of 100 kB", "POST", "/api/v1/agents/join", b"x" * 100_000, JSON, known=False, refused=(413,)),
    Hostile(
        "a join with half a character",
        "POST",
        "/api/v1/agents/join",
        b'{"token": "\\ud800", "name": "n"}',
        JSON,
        known=False,
        refused=(400, 401),
    ),
    Hostile(
        "a join of a name with a newline",
        "POST",
        "/api/v1/agents/join",
        b'{"token": "x", "name": "n\\n"}',
        JSON,
        known=False,
        refused=(422,),
    ),
    Hostile(
        "a sign-in with half a character", "POST", "/api/v1/auth/login", b'{"token": "\\ud800"}', JSON, known=False, refused=(400, 401, 422)
    ),
    Hostile("a key that is no text", "GET", JOBS, known=False, refused=(401,), headers={"Authorization": "Bearer \xff\xfe"}),
    Hostile(
        "a port that is none",
        "GET",
        JOBS,
        known=False,
        refused=(401,),
        headers={"Cookie": "paceline_session=x"},
        hosts=("127.0.0.1:99999",),
    ),
    Hostile("no Host", "GET", ME, refused=(400, 403), hosts=()),
    Hostile("a Host that is known before one that is not", "GET", ME, refused=(400, 403), hosts=("127.0.0.1", "evil.example")),
    Hostile("a Host that is known behind one that is not", "GET", ME, refused=(400, 403), hosts=("evil.example", "127.0.0.1")),
    Hostile("an absolute address of another host", "GET", "http://evil.example" + ME, hosts=("127.0.0.1",)),
    Hostile("an absolute address with another Host", "GET", "http://127.0.0.1" + ME, refused=(403,), hosts=("evil.example",)),
    Hostile("a method that nobody answers", "TRACE", JOBS, known=False, refused=(405,)),
)
DOCUMENTS = (
    Hostile("an alias bomb", "POST", PLAN, bomb(9), YAML, refused=(400,)),
    Hostile("a recursive alias", "POST", JOBS, b"a: &a [*a]", YAML, refused=(400,)),
    Hostile("64 kB of YAML", "POST", PLAN, b"".join(b"k%d: [1, 2, {a: b}]\n" % n for n in range(2600)), YAML, refused=(422,)),
    Hostile("a megabyte of YAML", "POST", PLAN, b"k: 1\n" * 200_000, YAML, refused=(413,)),
    Hostile("deep YAML", "POST", PLAN, b"[" * 60_000, YAML, refused=(400,)),
    Hostile("deep JSON", "POST", PLAN, b"[" * 60_000, JSON, refused=(400,)),
    Hostile("a date that is none", "POST", PLAN, b"name: 2020-99-99", YAML, refused=(422,)),
    Hostile("a number of 5,000 digits in YAML", "POST", PLAN, b"priority: " + b"9" * 5000, YAML, refused=(400,)),
    Hostile("a hexadecimal number of 60,000 digits", "POST", PLAN, b"priority: 0x" + b"f" * 60_000, YAML, refused=(400,)),
    Hostile("a number of 5,000 digits in JSON", "POST", PLAN, with_("priority", "9" * 5000), JSON, refused=(400,)),
    Hostile("an object of Python", "POST", PLAN, b"!!python/object/apply:os.abort []", YAML, refused=(400,)),
    Hostile("YAML that is no UTF-8", "POST", PLAN, b"\xff\xfe\x00a", YAML, refused=(400, 422)),
    Hostile("6,000 unknown fields", "POST", PLAN, b"{" + b",".join(b'"a%d":1' % n for n in range(6000)) + b"}", JSON, refused=(422,)),
    spec_with("model", '{"kind": "mlp", "hidden": [' + "0," * 30_000 + "0]}", "30,000 widths of zero"),
    spec_with("labels", "{" + ",".join(f'"A{n}":1' for n in range(6000)) + "}", "6,000 names that are none"),
    spec_with("environment.variables", "{" + ",".join(f'"{n}":1' for n in range(6000)) + "}", "6,000 names that are none"),
    spec_with("profile", '{"ranks": [' + "-1," * 18_000 + "-1]}", "18,000 ranks that are none"),
    spec_with("script", '{"path": "x", "args": [' + "0," * 30_000 + "0]}", "30,000 arguments that are none"),
    hf('"num_hidden_layers": 1000000000', "a billion layers"),
    hf('"vocab_size": 4000000000000000000', "a vocabulary of 4e18"),
    hf('"rope_theta": NaN', "NaN"),
    hf('"x": ' + '{"a":' * 500 + "1" + "}" * 500, "500 levels"),
    hf('"x": "\\u0000"', "NUL"),
)  # fmt: skip
VALUES = (
    spec_with("training.global_batch_size", "1000000000", "a billion"),
    spec_with("training", '{"steps": 1, "global_batch_size": 4194304, "micro_batch_size": 1}', "a batch in tokens"),
    spec_with("training.steps", "4000000000000000000", "4e18"),
    spec_with("training.steps", "true", "true"),
    spec_with("training.steps", '"1"', "a text"),
    spec_with("model.vocab_size", "4000000000000000000", "4e18"),
    spec_with("optimizer.lr", "Infinity", "infinity"),
    spec_with("optimizer.lr", "NaN", "NaN"),
    spec_with("fault_tolerance.hang_seconds", "NaN", "NaN"),
    spec_with("resources.nodes", "4611686018427387904", "2^62"),
    spec_with("resources.memory_per_slot", '"%sTiB"' % ("9" * 400), "400 digits of TiB"),
    spec_with("parallelism", '{"pipeline": 4611686018427387904}', "a pipeline of 2^62 ranks"),
    spec_with("name", '"a\\n"', "a newline", verb=JOBS),
    spec_with("description", '"a\\u0000b"', "NUL", verb=JOBS),
    spec_with("description", '"\\ud800"', "half a character", verb=JOBS),
    spec_with("labels", '{"a": "\\u0000"}', "NUL", verb=JOBS),
    spec_with("environment.variables", '{"A": "x\\u0000y"}', "NUL", verb=JOBS),
    spec_with("checkpoint.directory", '"/tmp/\\u0000"', "NUL", verb=JOBS),
    Hostile("a key's name with NUL", "POST", "/api/v1/keys", b'{"name": "a\\u0000b"}', JSON, refused=(422,)),
    Hostile("a user's name with a newline", "POST", "/api/v1/users", b'{"name": "admin\\n"}', JSON, refused=(422,)),
)
QUERIES = (
    Hostile("a label with a quote", "GET", JOBS + '?label.a"b=1', refused=(400,)),
    Hostile("a label with NUL", "GET", JOBS + "?label.a%00=b", refused=(400,)),
    Hostile("a label that is a path of JSON", "GET", JOBS + "?label.a'%5B*%5D=1", refused=(400,)),
    Hostile("500 labels", "GET", JOBS + "?" + "&".join(f"label.a{n}=1" for n in range(500)), refused=(400,)),
    Hostile("NUL in q", "GET", JOBS + "?q=%00", refused=(400,)),
    Hostile("NUL in an id", "GET", JOBS + "/%00", refused=(400,)),
    Hostile("half a character in q", "GET", JOBS + "?q=%ed%a0%80"),
    Hostile("a cursor with a huge priority", "GET", f"{JOBS}?sort=priority&cursor={cursor(1 << 70, 'x')}", refused=(400,)),
    Hostile("a cursor before all time", "GET", f"{JOBS}?cursor={cursor('0001-01-01T00:00:00+23:00', 'x')}", refused=(400,)),
    Hostile("a cursor with half a character", "GET", f"{JOBS}?sort=name&cursor={cursor(chr(0xD800), 'x')}", refused=(400,)),
    Hostile("a cursor with NUL", "GET", f"{JOBS}?sort=name&cursor={cursor(chr(0), 'x')}", refused=(400,)),
    Hostile("a cursor of 700 levels", "GET", f"{JOBS}?cursor={base64.urlsafe_b64encode(b'[' * 700).decode().rstrip('=')}", refused=(400,)),
    Hostile("a page of 2^70", "GET", f"{JOBS}?limit={1 << 70}", refused=(400,)),
    Hostile("events after 2^70", "GET", f"/api/v1/events?after={1 << 70}", refused=(400,)),
)
CASES = (*STRANGERS, *DOCUMENTS, *VALUES, *QUERIES)
