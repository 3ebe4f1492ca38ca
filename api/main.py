"""The coordinator: `create_app()` puts the parts together; `uvicorn api.main:app` serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from api.deps import Services
from api.loops import supervisor
from api.middleware.gate import Gate
from api.middleware.methods import HeadAsGet
from api.middleware.rate_limit import RateLimit
from api.problems import install_problem_handlers
from api.routing import routes
from api.services import first_start, rank_events
from api.services.key_uses import KeyUses
from api.services.progress import ProgressKeeper
from api.services.redis_bus import RedisBus
from api.services.uploads import UploadDoor
from api.services.writer import Writer
from api.settings import Settings
from db.migrate import upgrade_all
from db.session import open_databases


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Migrate, then start what runs beside the requests; stop it in reverse."""
    settings: Settings = app.state.settings
    async with AsyncExitStack() as stack:
        control, metrics = open_databases(settings.data, settings.database_url)
        stack.push_async_callback(metrics.close)
        stack.push_async_callback(control.close)
        await upgrade_all(control, metrics)
        app.state.services = services = Services(settings=settings, control=control, metrics=metrics, key_uses=KeyUses(control))
        if settings.redis_url:
            await stack.enter_async_context(RedisBus(settings.redis_url, services.bus).running())
        await _start_writers(app, services, stack)
        if app.state.with_loops:
            await first_start.welcome(services)
            await stack.enter_async_context(supervisor.run_all(app))
        yield


async def _start_writers(app: FastAPI, services: Services, stack: AsyncExitStack) -> None:
    app.state.writer = writer = Writer(services.metrics, services.bus)
    progress = ProgressKeeper(services)
    app.state.upload_door = UploadDoor(services, writer, progress, rank_events.apply)
    await stack.enter_async_context(services.key_uses.running())
    await stack.enter_async_context(writer.running())
    await stack.enter_async_context(progress.running())


def create_app(settings: Settings | None = None, *, with_loops: bool = True) -> FastAPI:
    """`with_loops=False`: requests only; whoever holds the app steps the loops (tests do)."""
    app = FastAPI(title="Paceline", version="0.1.0", lifespan=lifespan, routes=[*routes()], openapi_url=None, docs_url=None, redoc_url=None)
    app.state.settings = settings or Settings()
    app.state.with_loops = with_loops
    app.state.login_limit = RateLimit()
    app.add_middleware(HeadAsGet)
    app.add_middleware(Gate, settings=app.state.settings)
    install_problem_handlers(app)
    return app


app = create_app()
