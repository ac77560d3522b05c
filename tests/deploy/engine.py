"""podman, set up so that it runs also where there is no systemd; and what Docker Compose needs of an engine."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

# runc, since Debian 12's crun refuses hybrid cgroups; limits that also a root without CAP_SYS_RESOURCE may set.
CONTAINERS = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
# What lets pip in a build reach the index that pip on this machine reaches.
OF_THE_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True)
class Engine:
    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Engine":
        (folder / "containers.conf").write_text(CONTAINERS)
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        own = {"CONTAINERS_CONF": str(self.folder / "containers.conf"), "DOCKER_HOST": f"unix://{self.folder}/podman.sock"}
        return {name: value for name, value in os.environ.items() if not name.startswith(("CONCH_", "COMPOSE_"))} | own

    def podman(self, *arguments: str, within: float = 60) -> str:
        return self.run(("podman", *arguments), within)

    def run(self, command: tuple[str, ...], within: float, **environment: str) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment | environment, capture_output=True, text=True, timeout=within, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def has(self, image: str) -> bool:
        found = subprocess.run(("podman", "image", "exists", image), env=self.environment, check=False)
        return found.returncode == 0

    def build(self, tag: str, context: Path, *options: str) -> None:
        """In Docker's format: OCI's knows no HEALTHCHECK."""
        mounts = [f"--volume={path}:{path}:ro" for path in OF_THE_MACHINE if Path(path).exists()]
        fixed = ("build", "--quiet", "--pull=never", "--format=docker", "--network=host", *mounts)
        self.podman(*fixed, *options, "--tag", tag, str(context), within=900)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """The API that Compose talks to, and what systemd's timers do elsewhere: the healthchecks, each second."""
        service = subprocess.Popen(
            ("podman", "system", "service", "--time=0", self.environment["DOCKER_HOST"]), env=self.environment
        )
        over = threading.Event()
        nurse = threading.Thread(target=self._look_after, args=(over,))
        nurse.start()
        try:
            for _ in range(100):
                if (self.folder / "podman.sock").exists():
                    break
                time.sleep(0.1)
            yield
        finally:
            over.set()
            nurse.join()
            service.terminate()
            service.wait(30)

    def _look_after(self, over: threading.Event) -> None:
        while not over.wait(1):
            for container in self._running():
                subprocess.run(
                    ("podman", "healthcheck", "run", container), env=self.environment, capture_output=True, check=False
                )

    def _running(self) -> list[str]:
        command = ("podman", "ps", "--quiet", "--filter", "label=com.docker.compose.project=conch-test")
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout.split()
