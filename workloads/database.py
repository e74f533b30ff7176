"""Find, initialise, start and stop a separate MariaDB or MySQL server."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from contract import system_text
from contract.places import MOUNT_POINT
from workloads import programs
from workloads.base import WorkloadError

SERVER_USER = "mysql"
PACKAGES = ("mariadb-server", "mysql-server")
START_LIMIT_S = 180.0
STOP_LIMIT_S = 600.0
# MariaDB generates an RSA key at each start, which takes varying time; the socket needs none. MySQL
# does not know the option.
NO_TLS = ("--loose-skip-ssl",)
# No work is deferred to another phase: an orderly stop leaves nothing to purge, a start does not
# load the previous buffer pool, and no thread counts rows in the background.
NOTHING_LATER = (
    "--innodb-fast-shutdown=0",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-stats-auto-recalc=OFF",
)
# Without its X protocol, which opens another port; before 8.4 MySQL used the page cache by default.
MYSQL_ONLY = ("--mysqlx=OFF", "--innodb-flush-method=O_DIRECT")
# MariaDB from 11.6 on refuses to write a row that another client wrote since a transaction began,
# which MySQL waits for; sysbench passes over that error and begins again.
MARIADB_ONLY = (*NO_TLS, "--aria-pagecache-buffer-size=1M", "--loose-innodb-snapshot-isolation=OFF")
# How a server logs deviations from its defaults (other than as notes).
_LOG_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d[T ]+[\d:.]+Z? \d+ \[\w+\] ")
_FALLBACK = re.compile(r"fall(?:s|ing)? back|\baio\b|io_uring|liburing|io_setup|O_DIRECT", re.I)
_VARIABLES = (
    "innodb_buffer_pool_size",
    "innodb_data_file_buffering",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_linux_aio",
    "innodb_log_file_buffering",
    "innodb_page_size",
    "innodb_use_native_aio",
)
# sockaddr_un holds 108 bytes, the last of them zero.
SOCKET_PATH_LIMIT = 107
TEMPLATE_LOG_MIB = 16
# Caches of engines that no workload uses; with their default size a start takes a second longer.
SMALL_CACHES = ("--key-buffer-size=64K",)


APPARMOR = Path("/sys/kernel/security/apparmor")
_CLASS_FILE = 2  # kernel, security/apparmor/include/apparmor.h: AA_CLASS_FILE
_READ_WRITE = 0x6  # and include/perms.h: AA_MAY_WRITE, AA_MAY_READ


@dataclass(frozen=True)
class Binaries:
    """Programs of one installation; `install` is MariaDB's and None for MySQL."""

    server: Path
    client: Path
    install: Path | None


@dataclass(frozen=True)
class Instance:
    """A running server with its data, reachable only by a socket."""

    binaries: Binaries
    process: subprocess.Popen[bytes]
    data: Path
    log: Path

    @property
    def socket_path(self) -> Path:
        """Return the path of the socket, its only address."""
        return self.data / "s"

    def execute(self, statement: str) -> str:
        """Run a statement and return what the client prints."""
        return programs.run(self.client(statement))

    def client(self, statement: str) -> programs.Command:
        """Return the client's command for one SQL statement, as root."""
        where = [f"--socket={self.socket_path}", "--user=root"]
        options = ["--no-defaults", *NO_TLS, *where, "--batch", "--skip-column-names"]
        return [self.binaries.client, *options, "-e", statement]

    def status(self) -> dict[str, int]:
        """Return the server's counters by their names, in lower case (SHOW GLOBAL STATUS)."""
        lines = [line.split("\t") for line in self.execute("SHOW GLOBAL STATUS").splitlines()]
        return {
            words[0].lower(): int(words[1])
            for words in lines
            if len(words) == 2 and words[1].isdecimal()
        }

    def flush(self) -> None:
        """Write every changed page to the data files; WorkloadError if that does not end."""
        if self.status()["innodb_buffer_pool_pages_dirty"]:
            for share in (0, 90):  # 90 % is the default of both servers
                self.execute(f"SET GLOBAL innodb_max_dirty_pages_pct = {share}")
                deadline_s = time.monotonic() + STOP_LIMIT_S
                while not share and self.status()["innodb_buffer_pool_pages_dirty"]:
                    if time.monotonic() > deadline_s:
                        raise WorkloadError("server-not-flushed", name=self.binaries.server.name)
                    time.sleep(0.05)

    def shut_down(self) -> None:
        """Stop the server in order, its data complete; WorkloadError if it does not end well."""
        self.process.terminate()
        try:
            status: int | str = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            status = f"none after {STOP_LIMIT_S:g} s"
        if status != 0:
            self.stop()
            words = programs.last_line(system_text.read(self.log))
            name = self.binaries.server.name
            raise WorkloadError("server-not-stopped", name=name, status=status, words=words)

    def fallbacks(self) -> list[str]:
        """Return a sentence for each deviation of the server from its defaults."""
        name = self.binaries.server.name
        lines = system_text.read(self.log).splitlines()
        logged = [line for line in lines if "[Note]" not in line and _FALLBACK.search(line)]
        reasons = [f"{name} reports: {_LOG_PREFIX.sub('', line).strip()}" for line in logged]
        if self.variables().get("innodb_use_native_aio") == "OFF":
            reasons.append(f"{name} uses no asynchronous I/O of the kernel")
        if buffered := [path.name for path, direct in self._open_tables() if not direct]:
            reasons.append(f"{name} reads through the page cache: {', '.join(buffered)}")
        remedy = "Remove the cause in the target's kernel settings or file system."
        return [f"{reason.rstrip('.')}. {remedy}" for reason in dict.fromkeys(reasons)]

    def variables(self) -> dict[str, str]:
        """Return the server's settings that affect the disk."""
        names = ", ".join(f"'{name}'" for name in _VARIABLES)
        shown = self.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        pairs = (line.partition("\t") for line in shown.splitlines())
        return {name.lower(): value for name, _, value in pairs}

    def _open_tables(self) -> list[tuple[Path, bool]]:
        """Return the server's open files of InnoDB tables, and whether they have O_DIRECT."""
        process, tables = Path(f"/proc/{self.process.pid}"), []
        for descriptor in (process / "fd").iterdir():
            try:
                path = descriptor.readlink()
                info = system_text.read(process / "fdinfo" / descriptor.name)
            except OSError:  # closed by now
                continue
            if path.suffix == ".ibd" and path.is_relative_to(self.data):
                flags = int(info.partition("flags:")[2].split()[0], 8)
                tables.append((path, bool(flags & os.O_DIRECT)))
        return sorted(tables)

    def described(self) -> str:
        """Return version, AppArmor label, settings and fallbacks, for the run's files."""
        version = self.execute("SELECT VERSION()").strip()
        label = "none"  # a kernel without such a security module
        with suppress(OSError):
            attribute = Path(f"/proc/{self.process.pid}/attr/current")
            label = system_text.read(attribute).strip("\0\n ")
        lines = [f"{self.binaries.server.name} {version}", f"AppArmor: {label}"]
        lines += [f"{name} = {value}" for name, value in sorted(self.variables().items())]
        lines += [
            f"{path.relative_to(self.data)}: {'direct' if direct else 'buffered'}"
            for path, direct in self._open_tables()
        ]
        return "\n".join([*lines, *self.fallbacks(), ""])

    def stop(self) -> None:
        """Kill the server: its data is discarded."""
        programs.kill_group(self.process)


def find(kind: str = "any") -> Binaries | None:
    """Return the installed server of that kind, MySQL before MariaDB; None if there is none."""
    server, client = programs.find("mysqld"), programs.find("mysql")
    # MariaDB also installs programs with MySQL's names.
    if kind != "mariadb" and server and client and "maria" not in server.resolve().name:
        return Binaries(server, client, None)
    server, client = programs.find("mariadbd"), programs.find("mariadb")
    if kind == "mysql" or not server or not client:
        return None
    return Binaries(server, client, programs.find("mariadb-install-db", "mysql_install_db"))


def reasons(workload: str, kind: str = "any", data: Path = Path(MOUNT_POINT)) -> list[str]:
    """Return why no such server can run here with its data below `data`; empty if one can.

    Each reason is a sentence with the remedy.
    """
    binaries = find(kind)
    if binaries is None:
        package = " or ".join(PACKAGES) if kind == "any" else f"{kind}-server"
        return [f"{workload} needs a database server: install {package}."]
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(SERVER_USER)
        except KeyError:
            return [f"{workload} needs the user {SERVER_USER}: reinstall the server's package."]
    if (profile := confining(binaries.server)) and not _allowed(profile, data / "data"):
        return [
            f"{workload} cannot have its data below {data} while AppArmor confines "
            f"{binaries.server}: provision the target again, which allows it in "
            f"/etc/apparmor.d/local, or install mariadb-server."
        ]
    return []


def provide(binaries: Binaries, data: Path, temporary: Path, shared: Path) -> None:
    """Copy an empty database from `shared`; the first time, `initialise` creates it there.

    Initialising takes longer than many a workload.
    """
    template = shared / f"empty-{binaries.server.name}"
    if not template.exists():
        with tempfile.TemporaryDirectory(prefix="half-", dir=shared) as half:
            Path(half).chmod(0o711)
            initialise(binaries, Path(half, "data"), Path(half, "tmp"))
            Path(half, "data").rename(template)
    for folder in (data, temporary):
        _make(folder)
    programs.run(["cp", "-a", "--reflink=never", f"{template}/.", data])


def initialise(binaries: Binaries, data: Path, temporary: Path) -> None:
    """Create an empty database in `data` and the server's folder `temporary`.

    Both must not exist yet. Raises WorkloadError if the server's user has no access to them.
    """
    for folder in (data, temporary):
        _make(folder)
    common = [f"--datadir={data}", f"--tmpdir={temporary}"]
    if binaries.install is None:
        programs.run([*_server(binaries), *common, "--initialize-insecure"])
        return
    # Nothing needs to survive a power cut here, and small logs are written faster.
    quick = ["--innodb-flush-method=nosync", f"--innodb-log-file-size={TEMPLATE_LOG_MIB}M"]
    quick += [*SMALL_CACHES, *MARIADB_ONLY]
    access = ["--auth-root-authentication-method=normal", "--skip-name-resolve", "--skip-test-db"]
    user = [f"--user={SERVER_USER}"] if os.geteuid() == 0 else []
    programs.run([binaries.install, "--no-defaults", *user, *common, *access, *quick])


def start(
    binaries: Binaries,
    data: Path,
    temporary: Path,
    log: Path,
    *,
    buffer_pool_mib: int,
    redo_log_mib: int = 0,
) -> Instance:
    """Start the server and wait until it greets; WorkloadError with its last message if not.

    It writes each commit durably, as by default. Its output is appended to `log`. If `redo_log_mib`
    differs from the template's, the server writes that file again; 0 is its default.
    """
    if len(os.fsencode(data / "s")) > SOCKET_PATH_LIMIT:
        raise WorkloadError("socket-path-long", folder=data)
    options = [
        *(f"--datadir={data}", f"--socket={data / 's'}", f"--pid-file={data / 'pid'}"),
        *(f"--tmpdir={temporary}", "--skip-networking", "--skip-log-bin"),
        *(*SMALL_CACHES, *NOTHING_LATER),
        f"--innodb-buffer-pool-size={buffer_pool_mib}M",
    ]
    if binaries.install is None:  # by default MySQL requires a folder that its package creates
        options += [f"--secure-file-priv={temporary}", *MYSQL_ONLY]
    else:
        options += MARIADB_ONLY
    if redo_log_mib:
        options.append(f"--loose-innodb-log-file-size={redo_log_mib}M")
    with log.open("ab") as output:
        if os.geteuid() == 0:  # AppArmor lets the server write only its own files
            shutil.chown(log, SERVER_USER)
        process = subprocess.Popen(
            [*_server(binaries), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=programs.environment(),
            start_new_session=True,
        )
    instance = Instance(binaries, process, data, log)
    try:
        _await_greeting(instance)
    except BaseException:
        programs.kill_group(process)
        raise
    return instance


def _await_greeting(instance: Instance) -> None:
    name, deadline_s = instance.binaries.server.name, time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        if instance.process.poll() is not None:
            log = system_text.read(instance.log)
            # MySQL's last line only says that it ended.
            errors = (line for line in log.splitlines() if "[ERROR]" in line)
            words = next(errors, None) or programs.last_line(log)
            raise WorkloadError("server-ended", name=name, words=words)
        if _greets(instance.socket_path):
            return
        time.sleep(0.02)
    raise WorkloadError("server-silent", name=name, start_limit_s=START_LIMIT_S)


def _greets(socket_path: Path) -> bool:
    """Return whether a server sends its first packet, as it does to every client."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            connection.connect(str(socket_path))
            return len(connection.recv(4)) == 4
        except OSError:
            return False


def _server(binaries: Binaries) -> programs.Command:
    """Return the beginning of the server's command, as its user.

    MySQL is started as that user, as its package's service does: the package's AppArmor profile
    denies what it does as root before changing the user.
    """
    if os.geteuid() != 0:
        return [binaries.server, "--no-defaults"]
    if binaries.install is None:
        other = ["setpriv", f"--reuid={SERVER_USER}", f"--regid={SERVER_USER}", "--clear-groups"]
        return [*other, binaries.server, "--no-defaults"]
    return [binaries.server, "--no-defaults", f"--user={SERVER_USER}"]


def _make(folder: Path) -> None:
    """Make a new folder owned by the server's user."""
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        uid = pwd.getpwnam(SERVER_USER).pw_uid
        for parent in folder.parents:
            status = parent.stat()
            if not status.st_mode & 0o001 and status.st_uid != uid:
                raise WorkloadError("folder-closed", server_user=SERVER_USER, folder=parent)
        shutil.chown(folder, SERVER_USER)


def confining(server: Path) -> str:
    """Return the profile with which AppArmor confines this program; empty without one."""
    try:
        profiles = system_text.read(APPARMOR / "profiles").splitlines()
    except OSError:
        return ""
    return next((n for n in (str(server), server.name) if f"{n} (enforce)" in profiles), "")


def _allowed(profile: str, path: Path) -> bool:
    """Return whether the kernel's loaded profile permits reading and writing a file.

    The query is libapparmor's (aa_query_label(2), security/apparmor/apparmorfs.c: query_label): the
    label, the class of files and the path; the answer begins with `allow` and a mask.
    """
    query = b"label\0" + profile.encode() + b"\0" + bytes([_CLASS_FILE]) + os.fsencode(path)
    try:
        with (APPARMOR / ".access").open("r+b", buffering=0) as access:
            access.write(query)
            answer = (access.read(4096) or b"").split()
        return int(answer[1], 16) & _READ_WRITE == _READ_WRITE
    except (OSError, IndexError, ValueError):
        return False
