"""The coordinator: `create_app()` puts the parts together; `uvicorn api.main:app` serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api.deps import Services
from api.problems import install_problem_handlers
from api.routing import include_routes
from api.settings import Settings
from db.session import open_databases


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    control, metrics = open_databases(settings.data, settings.database_url)
    app.state.services = Services(settings=settings, control=control, metrics=metrics)
    try:
        yield
    finally:
        await control.close()
        await metrics.close()


def create_app(settings: Settings | None = None) -> FastAPI:
    app = FastAPI(title="Paceline", version="0.1.0", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.settings = settings or Settings()
    install_problem_handlers(app)
    include_routes(app)
    return app


app = create_app()
