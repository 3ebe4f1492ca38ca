"""The coordinator: `create_app()` puts the parts together; `uvicorn api.main:app` serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI

from api.deps import Services
from api.loops import supervisor
from api.middleware.connections import allow_descriptors
from api.middleware.gate import Gate
from api.middleware.identity_first import IdentityFirst
from api.middleware.methods import HeadAsGet
from api.middleware.rate_limit import RateLimit
from api.problems import install_problem_handlers
from api.routing import routes
from api.services import first_start, rank_events
from api.services.admission import Admission
from api.services.assignment_watch import AssignmentWatch
from api.services.background import in_background
from api.services.disk import watch_of
from api.services.heavy_reads import HeavyReads
from api.services.key_uses import KeyUses
from api.services.node_writer import NodeWriter
from api.services.presence import Heartbeats
from api.services.progress import ProgressKeeper
from api.services.redis_bus import RedisBus
from api.services.uploads import UploadDoor
from api.services.vitals import REFUSED, Vitals
from api.services.writer import Writer
from api.settings import Settings
from api.websocket.tails import Tails
from db.folder_lock import folder_lock
from db.migrate import upgrade_all
from db.session import open_databases
from monitoring.log_file import keep_small

#: Bodies of uploads that are read, looked through or wait to be stored at one time.
UPLOAD_BYTES = 64 << 20
UPLOAD_WAIT_SECONDS = 10.0
DOWNLOADS_AT_ONCE = 4


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Migrate, then start what runs beside the requests; stop it in reverse."""
    settings: Settings = app.state.settings
    allow_descriptors()
    async with AsyncExitStack() as stack:
        if app.state.with_loops and not settings.database_url:
            stack.enter_context(folder_lock(settings.data))
        control, metrics = open_databases(settings.data, settings.database_url)
        stack.push_async_callback(metrics.close)
        stack.push_async_callback(control.close)
        await upgrade_all(control, metrics)
        app.state.services = services = Services(
            settings=settings, control=control, metrics=metrics, key_uses=KeyUses(control), disk=watch_of(settings)
        )
        if settings.log_file is not None:
            await stack.enter_async_context(in_background("log-file", partial(keep_small, [settings.log_file])))
        if settings.redis_url:
            await stack.enter_async_context(RedisBus(settings.redis_url, services.bus).running())
        await _start_writers(app, services, stack)
        if app.state.with_loops:
            await first_start.welcome(services)
            await stack.enter_async_context(supervisor.run_all(app))
        yield


async def _start_writers(app: FastAPI, services: Services, stack: AsyncExitStack) -> None:
    app.state.vitals = vitals = Vitals()
    app.state.writer = writer = Writer(
        services.metrics, services.bus, services.now, waited=vitals.upload_wait.observe, passed_over=vitals.dropped.labels(REFUSED).inc
    )
    app.state.upload_admission = Admission("bytes of uploads", UPLOAD_BYTES, UPLOAD_WAIT_SECONDS)
    app.state.downloads = Admission("downloads", DOWNLOADS_AT_ONCE, UPLOAD_WAIT_SECONDS)
    app.state.heavy_reads = reads = HeavyReads(services)
    stack.callback(reads.close)
    progress = ProgressKeeper(services)
    app.state.heartbeats = heartbeats = Heartbeats(services)
    app.state.assignment_watch = watch = AssignmentWatch(services)
    app.state.tails = Tails(services)
    app.state.node_writer = node_writer = NodeWriter(services)
    app.state.upload_door = UploadDoor(services, writer, progress, rank_events.apply, vitals)
    await stack.enter_async_context(vitals.running())
    await stack.enter_async_context(services.key_uses.running())
    await stack.enter_async_context(writer.running())
    await stack.enter_async_context(progress.running())
    await stack.enter_async_context(heartbeats.running())
    await stack.enter_async_context(node_writer.running())
    await stack.enter_async_context(watch.running())


def create_app(settings: Settings | None = None, *, with_loops: bool = True) -> FastAPI:
    """`with_loops=False`: requests only; whoever holds the app steps the loops (tests do)."""
    app = FastAPI(title="Paceline", version="0.1.0", lifespan=lifespan, routes=[*routes()], openapi_url=None, docs_url=None, redoc_url=None)
    app.state.settings = settings or Settings()
    app.state.with_loops = with_loops
    app.state.loops = []
    app.state.login_limit, app.state.join_limit = RateLimit(), RateLimit()
    app.add_middleware(IdentityFirst)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Gate, settings=app.state.settings)
    install_problem_handlers(app)
    return app


app = create_app()
