"""The stages of a Dockerfile as folders: each RUN in a chroot of a Debian root. For root on Linux, with debootstrap and util-linux.

The base images have stand-ins: `debian:*` is what debootstrap makes, and `node:*` is that with this machine's Node in it; `scratch` is empty. A build reaches the network as
this machine does: its proxies, its name servers and its certificate authorities hold for each RUN, and are in no root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pathspec

from scripts.images.dockerfile import Copy, Dockerfile, Instruction, Stage, argument_of, assignments_of, copy_of

MIRROR = "http://deb.debian.org/debian"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Names of a file with certificate authorities, for the programs that builds call.
CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
#: What is bound into a root while something runs in it.
WITHIN = "/run/build"
RUN_SECONDS = 1200


@dataclass
class Root:
    """A stage that is built: its folder, the environment of what runs in it, and the instructions that say how it is run."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    directory: str = "/"
    user: str = "0:0"
    runs: dict[str, str] = field(default_factory=dict)  # by word: CMD, ENTRYPOINT, HEALTHCHECK


@dataclass
class ImageBuilder:
    """Builds stages of `dockerfile` below `folder`, each once. `arguments`: as of `--build-arg`; `shared`: seen at /run/build/shared by each RUN."""

    dockerfile: Dockerfile
    context: Path
    folder: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    shared: Path | None = None
    _built: dict[str, Root] = field(default_factory=dict)

    def build(self, name: str) -> Root:
        """Build a stage, and before it those that it needs. Raises CalledProcessError for a RUN that fails, with its output on ours."""
        if name not in self._built:
            self._built[name] = self._stage(self.dockerfile.stages[name])
        return self._built[name]

    def _stage(self, stage: Stage) -> Root:
        below = self.build(stage.base) if stage.base in self.dockerfile.stages else self._base_image(stage.base)
        root = Root(self.folder / stage.name, dict(below.environment), below.directory, below.user, dict(below.runs))
        copy_root(below.folder, root.folder)
        arguments: dict[str, str] = {}
        for instruction in stage.instructions:
            self._follow(instruction, root, arguments)
        return root

    def _follow(self, instruction: Instruction, root: Root, arguments: dict[str, str]) -> None:
        match instruction.word:
            case "ARG":
                name, value = argument_of(instruction, self.arguments, self.dockerfile.defaults)
                arguments[name] = value
            case "ENV":
                root.environment |= assignments_of(instruction, root.environment | arguments)
            case "WORKDIR":
                root.directory = os.path.join(root.directory, instruction.rest)
                inside(root, root.directory).mkdir(parents=True, exist_ok=True)
            case "USER":
                root.user = instruction.rest
            case "COPY":
                self._copy(copy_of(instruction), root)
            case "RUN":
                run_in(root, ["/bin/sh", "-c", instruction.rest], arguments | network_environment(), shared=self.shared)
            case word:
                root.runs[word] = instruction.rest

    def _copy(self, copy: Copy, root: Root) -> None:
        target = inside(root, os.path.join(root.directory, copy.target))
        for source in copy.sources:
            if copy.stage is not None:
                copy_from_stage(inside(self.build(copy.stage), source), target, is_folder=copy.target.endswith("/"))
            else:
                copy_context(self.context, source, target, is_folder=copy.target.endswith("/"))

    def _base_image(self, image: str) -> Root:
        name = image.partition(":")[0]
        if name not in ("debian", "node", "scratch"):
            raise ValueError(f"{image}: there is no stand-in for this image")
        if image not in self._built:
            root = self._built[image] = Root(self.folder / f"image-{name}")
            if name == "scratch":
                root.folder.mkdir()
            elif name == "debian":
                suite = image.partition(":")[2].partition("-")[0]
                subprocess.run(["debootstrap", "--variant=minbase", suite, root.folder, MIRROR], check=True, stdout=subprocess.DEVNULL)
                keep_no_packages(root)
            else:
                copy_root(self._base_image(self.dockerfile.defaults["DEBIAN"]).folder, root.folder)
                put_node(root.folder)
        return self._built[image]


def keep_no_packages(root: Root) -> None:
    """Let apt keep nothing that it has read or installed, as in Debian's images."""
    (root.folder / "etc/apt/apt.conf.d/keep-nothing").write_text(
        'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache ""; APT::Keep-Downloaded-Packages "false"; Binary::apt::APT::Keep-Downloaded-Packages "false";\n'
    )
    run_in(root, ["/bin/sh", "-c", "apt-get clean && rm -rf /var/cache/apt/*.bin /var/lib/apt/lists/*"], {})


def put_node(folder: Path) -> None:
    """Put this machine's Node and npm into a root."""
    node, npm = (Path(found).resolve() for name in ("node", "npm") if (found := shutil.which(name)))
    shutil.copy2(node, folder / "usr/bin/node")
    shutil.copytree(npm.parents[1], folder / "usr/lib/node_modules/npm", symlinks=True)
    (folder / "usr/bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")


def inside(root: Root, path: str) -> Path:
    return root.folder / path.lstrip("/")


def copy_root(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--archive", "--reflink=auto", source, target], check=True)


def copy_from_stage(source: Path, target: Path, *, is_folder: bool) -> None:
    """Copy a file, or what is in a folder, as COPY does from another stage: owners stay."""
    within = target if source.is_dir() or is_folder else target.parent
    within.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", f"{source}/." if source.is_dir() else source, target], check=True)


def copy_into(source: Path, target: Path, *, is_folder: bool) -> None:
    """Copy a file, or what is in a folder, as COPY does. `is_folder`: of `target`, in which a file keeps its name."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        return
    target = target / source.name if is_folder or target.is_dir() else target
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def copy_context(context: Path, source: str, target: Path, *, is_folder: bool) -> None:
    """Copy from the build's context what its .dockerignore does not leave out."""
    patterns = (context / ".dockerignore").read_text().splitlines()
    ignored = pathspec.GitIgnoreSpec.from_lines(line if line.startswith(("**", "#", "!")) else f"/{line}" for line in patterns if line)
    start = context / source
    if start.is_file():
        copy_into(start, target, is_folder=is_folder)
        return

    def left_out(folder: str, names: list[str]) -> set[str]:
        places = {name: (Path(folder) / name).relative_to(context).as_posix() for name in names}
        return {name for name, place in places.items() if ignored.match_file(place) or ignored.match_file(f"{place}/")}

    shutil.copytree(start, target, symlinks=True, dirs_exist_ok=True, ignore=left_out)


def network_environment() -> dict[str, str]:
    """Return the variables by which programs in a root reach the network as this machine's do."""
    proxies = {name: os.environ[name] for name in PROXIES if name in os.environ}
    return proxies | (dict.fromkeys(CA_VARIABLES, f"{WITHIN}/ca.pem") if certificate_authorities() else {})


def certificate_authorities() -> Path | None:
    """The file of certificate authorities that this machine's variables name."""
    return next((Path(path) for name in CA_VARIABLES if (path := os.environ.get(name)) and Path(path).is_file()), None)


def run_in(root: Root, command: Sequence[str], extra: Mapping[str, str], *, shared: Path | None = None) -> None:
    """Run a command in a root as its user, with this machine's network, as a RUN does."""
    mounts = [
        f"mount -t tmpfs tmpfs {root.folder}/run",
        f"mkdir -p {root.folder}{WITHIN}/shared",
        f"touch {root.folder}/etc/resolv.conf",
        f"mount --bind /etc/resolv.conf {root.folder}/etc/resolv.conf",
    ]
    if authorities := certificate_authorities():
        mounts.append(f"cp {authorities} {root.folder}{WITHIN}/ca.pem")
    if shared is not None:
        mounts.append(f"mount --bind {shared} {root.folder}{WITHIN}/shared")
    subprocess.run(command_in(root, command, extra, mounts), check=True, timeout=RUN_SECONDS)


def command_in(root: Root, command: Sequence[str], extra: Mapping[str, str], mounts: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` in a root as its user, in namespaces of its own for mounts and processes, after `mounts`."""
    assigned = [f"{name}={value}" for name, value in {**root.environment, **extra}.items()]
    within = shlex.join(["env", "--ignore-environment", f"--chdir={root.directory}", *assigned, *command])
    chroot = shlex.join(["chroot", f"--userspec={root.user}", str(root.folder), "/bin/sh", "-c", f"exec {within}"])
    script = "\n".join([*mounts, f"mount -t proc proc {root.folder}/proc", f"exec {chroot}"])
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec", script]
