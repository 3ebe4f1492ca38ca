"""Write the bytecode of what a coordinator imports, and of nothing else: python bytecode.py

An image is read-only where it runs, so each start compiles what has no bytecode. That of every module of every package is twice as large, and half of
it is never read: of agents and ranks, other databases' dialects, lexers. To be run by the image's Python, without PYTHONDONTWRITEBYTECODE.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

#: What is imported as a whole; the rest of Paceline is there as far as these two import it.
ROOMS = ("paceline.api", "paceline.db")
#: For `docker compose exec`, and the one-shot services of the compose file.
PROGRAMS = ("paceline.tls.make", "paceline.cli.main")
#: What is first imported when it is used.
USED_LATER = (
    "anyio._backends._asyncio",
    "anyio.from_thread",
    "asyncpg",
    "asyncssh",
    "authlib.integrations.httpx_client",
    "fastapi.telemetry._runtime",
    "joserfc.jwt",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "numpy",
    "obstore.store",
    "optuna.samplers",
    "redis.asyncio",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)


def main() -> None:
    without = [name for name in (*USED_LATER, *PROGRAMS, *modules(ROOMS)) if not imported(name)]
    print(f"not there, so without bytecode: {', '.join(without) or 'nothing'}")


def modules(rooms: tuple[str, ...]) -> Iterator[str]:
    """Yield every module in these packages but migrations, which alembic loads, and `__main__`."""
    for room in rooms:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}.", onerror=lambda name: None):
            if "migrations" not in found.name and not found.name.endswith("__main__"):
                yield found.name


def imported(name: str) -> bool:
    """Import a module. False where it, or what it needs, is not in this image: torch, Ray, or matplotlib."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    main()
