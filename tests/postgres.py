"""
A throwaway PostgreSQL: a cluster in a folder of its own, on a Unix socket alone, gone with whoever made it.

The server refuses to run as root, so it then runs as the user `postgres` that its package makes.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from reaper.store import open_store

PASSWORD = "s3cret-p4ss"
"""Of the role `guest`, the only one that needs one."""

_PACKAGED = Path("/usr/lib/postgresql")
_ACCESS = "local all guest scram-sha-256\nlocal all all trust\nlocal replication all trust\n"
# What is kept need not survive a power cut here.
_SETTINGS = "listen_addresses = ''\nfsync = off\nfull_page_writes = off\nmax_connections = 60\nwal_level = replica\nautovacuum = off\nshared_buffers = 32MB\n"


def program(name: str) -> str:
    """Where it is. Fails, and says what to install, where it is not: a test of ours that needs it must not be left out."""
    versions = sorted(_PACKAGED.glob("*/bin"), key=lambda folder: int(folder.parent.name.partition(".")[0]), reverse=True)
    for folder in versions:
        if (folder / name).is_file():
            return str(folder / name)
    found = shutil.which(name)
    assert found is not None, f"{name} is not here; the store is tested on a real server: apt-get install postgresql"
    return found


class Cluster:
    """``url``: of its database `postgres`. Made by `made`."""

    def __init__(self, folder: Path, *, copy_of: "Cluster | None" = None) -> None:
        self.folder, self.data = folder, folder / "data"
        folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        if copy_of is None:
            self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale", "C.UTF-8")
            (self.data / "pg_hba.conf").write_text(_ACCESS)
            with (self.data / "postgresql.conf").open("a") as settings:
                settings.write(_SETTINGS)
        else:
            self._run("pg_basebackup", "-D", str(self.data), "-h", str(copy_of.folder), "-U", "postgres", "--no-sync", "-c", "fast", "-R", "-X", "stream")
        self._names = count(1)

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-l", str(self.folder / "log"), "-o", f"-k {self.folder}", "start")

    def stop(self, how: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", how, "stop")

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        return f"postgresql://{user}{':' + password if password else ''}@/{database}?host={self.folder}"

    def do(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(host=str(self.folder), user="postgres", dbname=database, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
                rows = cursor.fetchall() if cursor.description is not None else []
        return rows

    def database(self, template: str = "template0") -> str:
        """A new one's name."""
        name = f"store{next(self._names)}"
        self.do(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8'")
        return name

    def drop(self, name: str) -> None:
        self.do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _run(self, name: str, *words: str) -> None:
        line = [program(name), *words]
        if os.geteuid() == 0:
            line = ["runuser", "-u", "postgres", "--", *line]
        done = subprocess.run(line, env={**os.environ, "LC_ALL": "C"}, cwd="/", stdin=subprocess.DEVNULL, capture_output=name != "pg_ctl", text=True, check=False)
        log = self.folder / "log"
        assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr} {log.read_text()[-2000:] if log.exists() else ''}"


@contextmanager
def made(*, copy_of: Cluster | None = None) -> Iterator[Cluster]:
    """A running one. In /tmp, since a socket's path may have a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="reaper-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder), copy_of=copy_of)
        cluster.start()
        try:
            yield cluster
        finally:
            if (cluster.data / "postmaster.pid").exists():
                cluster.stop("immediate")


def with_template(cluster: Cluster) -> Cluster:
    """With a database `migrated`, of which a copy takes a tenth of a second."""
    cluster.do("CREATE DATABASE migrated TEMPLATE template0 ENCODING 'UTF8'", f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    open_store(cluster.url("migrated")).close()
    return cluster
