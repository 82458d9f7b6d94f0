"""Maven packages of a session, and the settings that packages of well-known table formats need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privtab.errors import UsageError

PACKAGES, EXTENSIONS = "spark.jars.packages", "spark.sql.extensions"
_SETTINGS_OF_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "io.delta:delta-spark": {
        EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "org.apache.iceberg:iceberg-spark-runtime": {
        EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    },
}
"""By prefix of a package: the settings that Spark needs to read its tables."""


def with_packages(packages: Sequence[str], settings: Mapping[str, str], *, remote: bool) -> dict[str, str]:
    """The settings of a session that fetches packages (`group:artifact:version`) from a Maven repository.

    Settings given in `settings` take precedence. Raises UsageError for an invalid package, and if the session is on a server
    (`remote`), which has its own jars.
    """
    found = dict(settings)
    if not packages:
        return found
    if remote:
        raise UsageError("`--package` is for a session that starts here: a Spark Connect server has jars of its own")
    for package in packages:
        parts = package.split(":")
        if len(parts) != 3 or not all(parts) or "," in package:
            raise UsageError(f"`--package {package}`: write GROUP:ARTIFACT:VERSION")
    configured = [name for name in settings.get(PACKAGES, "").split(",") if name]
    found[PACKAGES] = ",".join(dict.fromkeys([*configured, *packages]))
    needed_settings = [
        package_settings
        for prefix, package_settings in _SETTINGS_OF_PACKAGES.items()
        if any(package.startswith(prefix) for package in packages)
    ]
    if EXTENSIONS not in settings and needed_settings:
        found[EXTENSIONS] = ",".join(package_settings[EXTENSIONS] for package_settings in needed_settings)
    for package_settings in needed_settings:
        for name, value in package_settings.items():
            found.setdefault(name, value)
    return found
