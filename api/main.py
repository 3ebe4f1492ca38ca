"""The coordinator: `create_app()` puts the parts together; `uvicorn api.main:app` serves it."""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from paceline.api.core.admission import Admission
from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.core.disk import watch_of
from paceline.api.core.last_uses import LastUses
from paceline.api.core.vault import NoSuchKeyError, VaultKeyError
from paceline.api.core.vitals import REFUSED, Vitals
from paceline.api.errors import ProblemError
from paceline.api.loops import supervisor
from paceline.api.middleware.compression import Compression
from paceline.api.middleware.connections import DESCRIPTORS
from paceline.api.middleware.gate import Gate
from paceline.api.middleware.identity_first import IdentityFirst
from paceline.api.middleware.methods import HeadAsGet
from paceline.api.middleware.rate_limit import RateLimit
from paceline.api.middleware.upload_shortcut import UploadShortcut, with_problems
from paceline.api.mock import mode
from paceline.api.problems import install_problem_handlers
from paceline.api.routes.agents import UPLOAD_ROUTE
from paceline.api.routing import routes
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.api.services.identity import first_credentials, first_start
from paceline.api.services.identity.failed_sign_ins import FailedSignIns
from paceline.api.services.ingest import rank_events
from paceline.api.services.ingest.history_room import HistoryRoom
from paceline.api.services.ingest.progress import ProgressKeeper
from paceline.api.services.ingest.readings import ReadingsWriter
from paceline.api.services.ingest.uploads import UploadHandler
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.nodes.presence import Heartbeats
from paceline.api.services.notifications import sealed_channels
from paceline.api.services.scheduling.assignment_watch import AssignmentWatch
from paceline.api.services.scheduling.node_writer import NodeWriter
from paceline.api.settings import Settings
from paceline.api.websocket.exec_broker import ExecBroker
from paceline.api.websocket.tails import SharedTails
from paceline.db.folder_lock import folder_lock
from paceline.db.migrate import upgrade_all
from paceline.db.repositories import secrets as secret_rows
from paceline.db.session import open_databases
from paceline.extras import pip_install
from paceline.monitoring.descriptors import allow_descriptors
from paceline.monitoring.log_file import cap_periodically
from paceline.version import version

if TYPE_CHECKING:
    from paceline.api.core.redis_bus import RedisBus

#: Bodies of uploads that are read, looked through or wait to be stored at one time.
UPLOAD_BYTES = 64 << 20
UPLOAD_WAIT_SECONDS = 10.0
DOWNLOADS_AT_ONCE = 4
#: FastAPI's own OpenTelemetry, which records what requests contain, and looks at every request whether somebody has configured it: a
#: tenth of an upload's time. Paceline tells of itself at /metrics.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}

logger = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Migrate, then start what runs beside the requests; stop it in reverse."""
    settings: Settings = app.state.settings
    allow_descriptors(DESCRIPTORS)
    async with AsyncExitStack() as stack:
        simulation = None
        if settings.mock_db:
            settings, simulation = await stack.enter_async_context(mode.prepared(settings))
        if app.state.with_loops and not settings.database_url:
            stack.enter_context(folder_lock(settings.data))
        control, metrics = open_databases(settings.data, settings.database_url)
        stack.push_async_callback(metrics.close)
        stack.push_async_callback(control.close)
        await upgrade_all(control, metrics)
        app.state.services = services = Services(
            settings=settings, control=control, metrics=metrics, last_uses=LastUses(control), disk=watch_of(settings)
        )
        await prepare_seals(services)
        app.state.failed_sign_ins = FailedSignIns(services)
        if settings.log_file is not None:
            await stack.enter_async_context(in_background("log-file", functools.partial(cap_periodically, [settings.log_file])))
        if settings.redis_url:
            await stack.enter_async_context(_redis_bus(settings.redis_url, services).running())
        await _start_writers(app, services, stack)
        if app.state.with_loops:
            await first_credentials.accept(services)
            await first_start.welcome(services)
            await stack.enter_async_context(supervisor.run_all(app))
            if simulation is not None:
                await stack.enter_async_context(mode.running(app, services, simulation))
        leave_loaded_uncollected()
        yield


@functools.cache
def leave_loaded_uncollected() -> None:
    """Leave what the process has loaded by now out of the garbage collector's rounds.

    Modules, schemas and mappers stay for as long as the process does. Looking through them all, which any large document sets off, takes a quarter of a
    second in which no request is answered. Only once: what further apps of one process leave behind is to be collected.
    """
    gc.collect()
    gc.freeze()


async def prepare_seals(services: Services) -> None:
    """Look at the keys of the vault before anything asks for them, and seal what a version without seals has stored. A key that is not here is told, and ends
    nothing: all but secrets and channels goes on. Raises RuntimeError where what should be a key is none."""
    try:
        services.vault.read_keys()
        await sealed_channels.seal_readable(services)
    except VaultKeyError as error:
        raise RuntimeError(str(error)) from error
    except ProblemError as problem:
        logger.error("channels of notifications stay as they are: %s", problem.detail)
    async with services.control.read() as session:
        key_id = await secret_rows.vault_key(session)
    if key_id is not None and key_id not in services.vault.read_keys():
        logger.error("%s", NoSuchKeyError(key_id, services.vault.place))


def _redis_bus(url: str, services: Services) -> RedisBus:
    """The bus of this URL. Raises RuntimeError where Redis's client, an optional package, is not installed."""
    try:
        from paceline.api.core.redis_bus import RedisBus
    except ImportError:
        raise RuntimeError(f"REDIS_URL is set; the client for it comes with: {pip_install('redis')}") from None
    return RedisBus(url, services.bus)


async def _start_writers(app: FastAPI, services: Services, stack: AsyncExitStack) -> None:
    app.state.vitals = vitals = Vitals()
    app.state.writer = writer = MetricsWriter(
        services.metrics, services.bus, services.now, waited=vitals.upload_wait.observe, count_refused=vitals.dropped.labels(REFUSED).inc
    )
    app.state.upload_admission = Admission("bytes of uploads", UPLOAD_BYTES, UPLOAD_WAIT_SECONDS)
    app.state.downloads = Admission("downloads", DOWNLOADS_AT_ONCE, UPLOAD_WAIT_SECONDS)
    app.state.heavy_reads = reads = HeavyReads(services)
    stack.callback(reads.close)
    progress = ProgressKeeper(services)
    app.state.heartbeats = heartbeats = Heartbeats(services)
    app.state.assignment_watch = watch = AssignmentWatch(services)
    app.state.tails = SharedTails(services)
    app.state.exec_broker = exec_broker = ExecBroker(services)
    app.state.node_writer = node_writer = NodeWriter(services, progress)
    readings = ReadingsWriter(services)
    apply_event = functools.partial(rank_events.apply, HistoryRoom(services.disk))
    app.state.upload_door = UploadHandler(services, writer, progress, apply_event, vitals, readings)
    await stack.enter_async_context(vitals.running())
    await stack.enter_async_context(services.last_uses.running())
    await stack.enter_async_context(writer.running())
    await stack.enter_async_context(readings.running())
    await stack.enter_async_context(progress.running())
    await stack.enter_async_context(heartbeats.running())
    await stack.enter_async_context(node_writer.running())
    await stack.enter_async_context(watch.running())
    await stack.enter_async_context(exec_broker.running())


def create_app(settings: Settings | None = None, *, with_loops: bool = True) -> FastAPI:
    """Make the application. `with_loops=False`: requests only; the caller steps the loops (tests do)."""
    app = FastAPI(
        title="Paceline",
        version=version(),
        lifespan=lifespan,
        routes=[*routes()],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    app.state.settings = settings or Settings()
    app.state.with_loops = with_loops
    app.state.loops = []
    app.state.login_limit, app.state.join_limit = RateLimit(), RateLimit()
    app.add_middleware(IdentityFirst)
    app.add_middleware(Compression)
    app.add_middleware(HeadAsGet)
    install_problem_handlers(app)
    app.add_middleware(UploadShortcut, uploads=with_problems(UPLOAD_ROUTE.app, app.exception_handlers))
    app.add_middleware(Gate, settings=app.state.settings)
    return app


app = create_app()
