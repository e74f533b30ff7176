"""Choice of the database server with both, one, or MariaDB under MySQL's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from workloads import database, programs, registry
from workloads.base import WorkloadError
from workloads.tests import contract

MARIADB = ("mariadbd", "mariadb", "mariadb-install-db")
MYSQL = ("mysqld", "mysql")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the only folder in which programs are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(programs, "SEARCH_PATH_SUFFIX", ())
    return folder


def put(folder: Path, *names: str) -> None:
    """Create programs that can be found."""
    for name in names:
        (folder / name).touch(mode=0o755)


def server(kind: str) -> str | None:
    """Return the name of the server's program."""
    server_found = database.find(kind)
    return server_found.server.name if server_found else None


def test_with_both_the_choice_decides_and_any_is_mysql(installed: Path) -> None:
    put(installed, *MARIADB, *MYSQL)
    assert {choice: server(choice) for choice in ("any", "mariadb", "mysql")} == {
        "any": "mysqld",
        "mariadb": "mariadbd",
        "mysql": "mysqld",
    }
    server_found = database.find("mysql")
    assert (
        server_found is not None
        and server_found.install is None
        and server_found.client.name == "mysql"
    )


def test_mariadb_under_mysqls_names_is_not_mysql(installed: Path) -> None:
    put(installed, *MARIADB)
    (installed / "mysqld").symlink_to("mariadbd")
    (installed / "mysql").symlink_to("mariadb")
    assert server("mysql") is None
    assert database.reasons("sql", "mysql") == [
        "sql needs a database server: install mysql-server."
    ]


def test_mysql_satisfies_any_but_not_mariadb(installed: Path) -> None:
    put(installed, *MYSQL)
    assert server("any") == "mysqld"
    assert server("mariadb") is None
    assert "install mariadb-server." in database.reasons("sql", "mariadb")[0]
    for path in installed.iterdir():
        path.unlink()
    assert "install mariadb-server or mysql-server." in database.reasons("sql")[0]


def test_the_workload_asks_for_the_server_of_its_parameter(installed: Path, tmp_path: Path) -> None:
    put(installed, *MARIADB)
    context, _ = contract.new_run("sql", tmp_path / "run", server="mysql")
    with pytest.raises(WorkloadError, match="install mysql-server"):
        registry.load("sql").prepare(context)
    with refuses("parameter-choice", allowed="any, mariadb, mysql"):
        registry.complete("sql", {"server": "oracle"})
