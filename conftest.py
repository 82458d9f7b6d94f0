"""The fixtures that tests of the core and of every package may ask for; their modules are in `tests/support`."""

pytest_plugins = ["shared_fixtures", "command_fixtures"]
