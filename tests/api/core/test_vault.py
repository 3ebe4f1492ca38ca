"""Keys, seals, and what is said where a key is missing or a sealed text was moved."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from paceline.api.core import vault as vaults
from paceline.api.core.context import Services
from paceline.api.core.vault import NoSuchKeyError, SealDamagedError, Vault, VaultKeyError
from paceline.api.errors import ProblemError
from paceline.api.settings import Settings

PLACE = ("secret", "vision", "TOKEN")


def vault(tmp_path: Path, **changes: Any) -> Vault:
    return Vault(Settings(data=tmp_path, **changes))


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def test_a_key_is_made_once_in_a_private_file(tmp_path: Path) -> None:
    ours = vault(tmp_path / "data")
    assert ours.read_keys() == {}
    made = ours.newest()
    assert ours.newest() == made == vault(tmp_path / "data").newest()
    assert stat.S_IMODE((tmp_path / "data" / "secrets.key").stat().st_mode) == 0o600


def test_a_sealed_text_opens_in_its_own_place_only(tmp_path: Path) -> None:
    ours = vault(tmp_path)
    sealed = ours.seal_with(ours.newest(), "wörd", *PLACE)
    assert vaults.is_sealed(sealed)
    assert "w" not in sealed.removeprefix(vaults.MARK).split(":")[0]
    assert ours.open(sealed, *PLACE) == "wörd"
    assert ours.seal_with(ours.newest(), "wörd", *PLACE) != sealed
    for place in (("secret", "vision", "OTHER"), ("secret", "text", "TOKEN"), ("secret", "visionTOKEN")):
        with pytest.raises(SealDamagedError, match="was changed in the database"):
            ours.open(sealed, *place)
    with pytest.raises(SealDamagedError):
        ours.open(sealed[:-8] + ("A" * 8 if not sealed.endswith("A" * 8) else "B" * 8), *PLACE)


def test_older_keys_open_and_the_newest_seals_and_another_process_sees_a_new_key(tmp_path: Path) -> None:
    ours, other = vault(tmp_path), vault(tmp_path)
    first = ours.newest()
    sealed = other.seal_with(other.newest(), "text", *PLACE)
    second = ours.make_key()
    assert list(other.read_keys()) == [second, first]
    assert other.open(sealed, *PLACE) == "text"
    assert ours.keep_only(second) == 1
    with pytest.raises(NoSuchKeyError, match=rf"sealed with the key {first}.*secrets\.key"):
        other.open(sealed, *PLACE)


def test_keys_of_the_environment_are_as_they_are(tmp_path: Path) -> None:
    new, old = key(), key()
    before = vault(tmp_path, secrets_key=SecretStr(old))
    sealed = before.seal_with(before.newest(), "text", *PLACE)
    now = vault(tmp_path, secrets_key=SecretStr(f"{new},{old}"))
    assert now.open(sealed, *PLACE) == "text"
    assert now.newest() != before.newest()
    assert not now.makes_keys
    assert now.keep_only(now.newest()) == 0
    assert not (tmp_path / "secrets.key").exists()


@pytest.mark.parametrize("text", ["no key", base64.b64encode(b"short").decode(), "ä"])
def test_what_is_no_key_is_told_without_showing_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine").write_text(text)
    with pytest.raises(VaultKeyError) as raised:
        vault(tmp_path, secrets_key_file=tmp_path / "mine").read_keys()
    assert text not in str(raised.value)
    assert str(tmp_path / "mine") in str(raised.value)


def test_a_file_that_others_can_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours = vault(tmp_path)
    ours.newest()
    (tmp_path / "secrets.key").chmod(0o644)
    vault(tmp_path).read_keys()
    assert "can be read by other users" in caplog.text


async def test_a_coordinator_with_another_key_seals_nothing(services: Services, tmp_path: Path) -> None:
    async with services.write() as session:
        sealed = await vaults.seal(session, services.vault, "text", *PLACE)
    assert services.vault.open(sealed, *PLACE) == "text"
    stranger = vault(tmp_path / "elsewhere")
    with pytest.raises(ProblemError, match="nothing can be sealed: sealed with the key"):
        async with services.write() as session:
            await vaults.seal(session, stranger, "text", *PLACE)
