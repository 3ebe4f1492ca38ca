# syntax=docker/dockerfile:1
# Two images of one Paceline:
#   docker build --target coordinator -t paceline-coordinator .
#   docker build --target coordinator --build-arg COORDINATOR_EXTRAS=experiments -t paceline-coordinator:figures .              # reports with figures
#   docker build --target agent -t paceline-agent .                                                             # CPU
#   docker build --target agent --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 -t paceline-agent:cuda .
# Both run as user 10001 and write to /var/lib/paceline and /tmp only: their root may be read-only.

ARG DEBIAN=debian:bookworm-slim
ARG NODE=node:22-bookworm-slim

FROM ${DEBIAN} AS python
ENV LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /usr/share/man /usr/share/locale \
    && find /usr/share/doc -type f ! -name copyright -delete \
    && groupadd --gid 10001 paceline \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/paceline --create-home --shell /usr/sbin/nologin paceline \
    && install --directory --owner 10001 --group 10001 /checkpoints /join /tls /tls-public
ENV PATH=/opt/paceline/bin:$PATH HOME=/var/lib/paceline PACELINE_DATA=/var/lib/paceline

FROM python AS source
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/paceline && pip install setuptools==84.2.1
WORKDIR /src
COPY . .

FROM source AS documentation
RUN grep ^mkdocs requirements.txt > /tmp/mkdocs.txt \
    && pip install --no-build-isolation --constraint constraints.txt --requirement /tmp/mkdocs.txt . \
    && python -m scripts.docs_site --into /docs

FROM ${NODE} AS dashboard
WORKDIR /src/dashboard
COPY dashboard/package.json dashboard/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY dashboard ./
COPY --from=documentation /docs public/docs
RUN npm run build

FROM source AS build
COPY --from=dashboard /src/dashboard/dist dashboard/dist
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM build AS build-coordinator
# `search` is Optuna; `experiments` is matplotlib too, which draws the figures of reports. Tests are 20 MB of the packages, debug symbols 55 MB.
ARG COORDINATOR_EXTRAS=search
RUN pip install --no-compile --constraint constraints.txt "$(echo /wheels/paceline-*.whl)[postgres,redis,oidc,ssh,${COORDINATOR_EXTRAS}]" \
    && pip uninstall -y setuptools pip \
    && find /opt/paceline -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -r {} + \
    && find /opt/paceline -name "*.so" ! -path "*.libs/*" -exec strip --strip-unneeded {} +

FROM build AS build-agent
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=hf
RUN pip install --index-url "${TORCH_INDEX}" torch==2.13.0 \
    && pip install --constraint constraints.txt "$(echo /wheels/paceline-*.whl)[worker,${EXTRAS}]" tensorboard==2.21.0

# Debian without what installs packages, boots machines and keeps accounts; dpkg stays, by which scanners see what is there. Bytecode of what is imported.
FROM python AS lean-coordinator
RUN purge() { dpkg --purge --force-depends --force-remove-essential --force-remove-protected "$@"; } \
    && purge apt libapt-pkg6.0 adduser debian-archive-keyring gpgv openssl \
      libgcrypt20 libgnutls30 libgpg-error0 libhogweed6 libidn2-0 liblz4-1 libnettle8 libp11-kit0 libseccomp2 libtasn1-6 libunistring2 libxxhash0 \
      bsdutils e2fsprogs libext2fs2 libss2 logsave mount sysvinit-utils util-linux util-linux-extra \
      login passwd libsemanage2 libsemanage-common libsepol2 libsystemd0 libudev1 \
    && purge debconf diffutils init-system-helpers perl-base \
    && rm -rf /usr/lib/*/gconv /var/cache/debconf /var/lib/apt /var/log/apt \
    && find /usr/lib -type d -name __pycache__ -prune -exec rm -r {} +
COPY --from=build-coordinator /opt/paceline /opt/paceline
COPY scripts/images/bytecode.py /opt/paceline/share/
RUN env --unset=PYTHONDONTWRITEBYTECODE python /opt/paceline/share/bytecode.py

# From scratch, since what a layer takes away is still in the one below.
FROM scratch AS coordinator
# hadolint ignore=DL3067
COPY --from=lean-coordinator / /
ENV LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV PATH=/opt/paceline/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/lib/paceline PACELINE_DATA=/var/lib/paceline
ENV PACELINE_PRINT_LOGIN_LINK=false
USER 10001:10001
WORKDIR /var/lib/paceline
VOLUME /var/lib/paceline
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-m", "paceline.api.probe"]
ENTRYPOINT ["python", "-m", "paceline.api.serve"]
CMD ["--host", "0.0.0.0", "--port", "8000"]

FROM python AS agent
# For torch.compile, and for py-spy's look at stacks.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ python3-dev procps \
    && rm -rf /var/lib/apt/lists/* /usr/share/man /usr/share/locale \
    && find /usr/share/doc -type f ! -name copyright -delete
COPY --from=build-agent /opt/paceline /opt/paceline
USER 10001:10001
WORKDIR /var/lib/paceline
VOLUME /var/lib/paceline
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=4 CMD ["python", "-m", "paceline.cluster.agent.probe", "/var/lib/paceline/agent"]
ENTRYPOINT ["paceline", "worker", "--data", "/var/lib/paceline/agent"]
