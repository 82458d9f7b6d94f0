"""The permissions of Teracloud Streams objects, read from the document once more.

Line, object, operation | condition | effects | title.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from privtab.ir.nodes import Program
from privtab.pipeline import load_program

if TYPE_CHECKING:
    from tests.policies.conftest import Tools

DOMAIN = """
    7 domain remove | delete (domain) | | Remove a domain
    8 domain start | write (domain) | | Start a domain
    8 domain stop | write (domain) | | Stop a domain
    8 domain restart_services | write (domain) | | Restart domain services
    8 domain clean_logs | write (domain) | | Clean domain logs
    9 domain_config view_tags | read (domain_config) | | View tags
    9 domain_config view_properties | read (domain_config) | | View properties
    10 domain_config manage_roles | write (domain_config) | | Manage roles
    10 domain_config manage_users | write (domain_config) | | Manage users
    10 domain_config manage_groups | write (domain_config) | | Manage groups
    10 domain_config modify_properties | write (domain_config) | | Modify properties
    10 domain_config view_permissions | write (domain_config) | | View permissions
    10 domain_config set_permissions | write (domain_config) | | Set permissions
    10 domain_config make_tags | write (domain_config) | | Make tags
    10 domain_config modify_tags | write (domain_config) | | Modify tags
    11 domain_hosts add | add (domain_hosts) | | Add a resource to the domain
    12 domain_hosts get_state | read (domain_hosts) | | Get information about the state of the domain
    13 domain_hosts list | search (domain_hosts) | | View available resources
    14 domain_hosts remove | search + delete (domain_hosts) | | Remove a resource from the domain
    15 domain_hosts modify_tags | search + read + write (domain_hosts) | | Modify tags
    16 domain_hosts quiesce | write (domain_hosts) | | Quiesce resources
    16 domain_hosts resume | write (domain_hosts) | | Resume resources
    16 domain_hosts remove_tags | write (domain_hosts) | | Remove tags
    17 instance create | add (instances) | become owner (instance) | Create an instance
    18 instances list | search (instances) | | View the instances in the domain
    19 domain_system_log view_domain_logs | read (domain_system_log) | | View the domain logs
    19 domain_system_log get_domain_logs | read (domain_system_log) | | Get the domain logs
    19 domain_system_log view_instance_logs | read (domain_system_log) | | View the instance logs
    19 domain_system_log get_instance_logs | read (domain_system_log) | | Get the instance logs
    19 domain_system_log view_job_logs | read (domain_system_log) | | View the job logs
    19 domain_system_log get_job_logs | read (domain_system_log) | | Get the job logs
    20 domain_appconfig list | search (domain_appconfig) | | View domain-level application configurations
    21 domain_appconfig create | add (domain_appconfig) | become owner (domain_appconfig_element) | Create new application configurations at the domain level
    22 domain_appconfig_element view | read (domain_appconfig_element) | | View domain-level application configuration elements
    23 domain_appconfig_element create | write (domain_appconfig_element) | become owner (domain_appconfig_element) | Create an application configuration element at the domain level
    24 domain_appconfig_element remove | delete (domain_appconfig_element) | | Remove a domain-level application configuration element
"""
INSTANCE = """
    27 instance remove | delete (instance) | | Remove an instance
    28 instance capture_resources | search (instance) | | Capture information about the resources in an instance
    17 instance copy | add (instances) and search (source) | become owner (instance) | Copy an instance
    28 instance list | search (instances); each search (instance) | | List the instance when listing domain instances
    28 instance view_instance_logs | read (instance_system_log) | | View the instance logs
    28 instance view_application_logs | read (application_log) or read (instance_system_log) | | View the application logs
    28 instance get_state | search (instance) | | Get information about the state of an instance
    29 instance start | write (instance) | | Start the instance
    29 instance stop | write (instance) | | Stop the instance
    29 instance clean_log | write (instance) | | Clean the instance log
    30 instance_config view_properties | read (instance_config) | | View properties
    30 job_group list | read (instance_config); each anyone | | List job groups
    31 instance_config manage_roles | write (instance_config) | | Manage roles
    31 instance_config manage_users | write (instance_config) | | Manage users
    31 instance_config manage_groups | write (instance_config) | | Manage groups
    31 instance_config modify_properties | write (instance_config) | | Modify properties
    31 instance_config view_permissions | write (instance_config) | | View permissions
    31 instance_config set_permissions | write (instance_config) | | Set permissions
    31 instance_config manage_resource_specifications | write (instance_config) | | Manage resource specifications
    31 job_group remove | write (instance_config) | | Remove job groups
    32 instance_hosts add | add (instance_hosts) | | Add a resource to an instance
    33 instance_hosts get_state | read (instance_hosts) | | Get information about the state of the instance
    34 instance_hosts remove | search + delete (instance_hosts) | | Remove a resource and its services from an instance
    35 instance_hosts list | search + read (instance_hosts) | | List resources in an instance
    36 instance_hosts remove_specification | search + read + delete (instance_hosts) | | Remove a resource specification from an instance
    37 instance_hosts modify_specification | search + read + write (instance_hosts) | | Modify a resource specification
    38 instance_hosts quiesce | write (instance_hosts) | | Quiesce resources
    38 instance_hosts resume | write (instance_hosts) | | Resume resources
    39 job_group create | write (instance_config) or add (jobs) | become owner (job_group) | Create a job group
    40 jobs list_jobs | search (jobs) | | List jobs
    40 jobs list_pes | search (jobs) | | List PEs
    40 jobs get_job_state | search (jobs) | | Get information about the state of jobs
    40 jobs get_job_status | search (jobs) | | Get information about the status of jobs
    40 jobs get_pe_state | search (jobs) | | Get information about the state of PEs
    40 jobs get_pe_status | search (jobs) | | Get information about the status of PEs
    42 job_group submit | add (job_group) | grant read (job); grant write (job); grant add (job); grant delete (job) | Submit a job
    43 job_group stop_job | delete (job_group) | | Stop a job
    43 job_group stop_pe | delete (job_group) | | Stop a PE in a job
    44 job_group update_pe | add + delete (job_group) | | Update a PE in a job
    44 job_group restart_pe | add + delete (job_group) | | Restart a PE in a job
    45 job_group receive_data | read (job_group) | | Receive data from jobs
    45 job_group get_job_state | read (job_group) | | Get information about the state of jobs
    45 job_group list_jobs | read (job_group) | | List jobs
    45 job_group view_application_logs | read (job_group) | | View application logs
    45 job_group list_pes | read (job_group) | | List PEs
    45 job_group view_pe_logs | read (job_group) | | View PE logs
    46 job_group send_data | write (job_group) | | Send data to jobs
    47 jobs_override submit | add (jobs_override) | | Run the streamtool submitjob command with the --override option
    48 application_log view_application_logs | read (application_log) | | View the application logs
    48 application_log get_application_logs | read (application_log) | | Get the application logs
    49 instance_system_log view_instance_logs | read (instance_system_log) | | View the instance logs
    49 instance_system_log get_instance_logs | read (instance_system_log) | | Get the instance logs
    49 instance_system_log view_application_logs | read (instance_system_log) | | View the application logs
    49 instance_system_log get_application_logs | read (instance_system_log) | | Get the application logs
    50 instance_appconfig list | search (instance_appconfig) | | View instance-level application configurations
    51 instance_appconfig create | add (instance_appconfig) | become owner (instance_appconfig_element) | Create application configurations at the instance level
    52 instance_appconfig_element view | read (instance_appconfig_element) | | View instance-level application configuration elements
    53 instance_appconfig_element create | write (instance_appconfig_element) | become owner (instance_appconfig_element) | Create an application configuration element at the instance level
    54 instance_appconfig_element remove | delete (instance_appconfig_element) | | Remove an instance-level application configuration element
"""
# The submitter's rights are on the job (42), so the lines of the group hold for one job as well.
JOB = """
    43 job stop | delete (job_group) or delete (job) | | Stop a job
    43 job stop_pe | delete (job_group) or delete (job) | | Stop a PE in a job
    44 job update_pe | add + delete (job_group) or add + delete (job) | | Update a PE in a job
    44 job restart_pe | add + delete (job_group) or add + delete (job) | | Restart a PE in a job
    45 job receive_data | read (job_group) or read (job) | | Receive data from jobs
    45 job get_state | search (jobs) or read (job_group) or read (job) | | Get information about the state of jobs
    45 job list | anyone; each search (jobs) or read (job_group) or read (job) | | List jobs
    45 job list_pes | search (jobs) or read (job_group) or read (job) | | List PEs
    45 job view_application_logs | read (job_group) or read (job) | | View application logs
    45 job view_pe_logs | read (job_group) or read (job) | | View PE logs
    46 job send_data | write (job_group) or write (job) | | Send data to jobs
"""
INSTANCE_ADMINISTRATOR = {
    "instance": {"delete", "search", "write"},
    "instance_config": {"read", "write"},
    "instance_hosts": {"add", "read", "search", "delete", "write"},
    "jobs": {"add", "search"},
    "job_group": {"add", "delete", "read", "write"},
    "jobs_override": {"add"},
    "application_log": {"read"},
    "instance_system_log": {"read"},
    "instance_appconfig": {"search", "add"},
    "instance_appconfig_element": {"read", "write", "delete"},
}
ROLES = {
    "domain_administrator": (
        "domain",
        {
            "domain": {"delete", "write"},
            "domain_config": {"read", "write"},
            "domain_hosts": {"add", "read", "search", "delete", "write"},
            "instances": {"add", "search"},
            "domain_system_log": {"read"},
            "domain_appconfig": {"search", "add"},
            "domain_appconfig_element": {"read", "write", "delete"},
            **INSTANCE_ADMINISTRATOR,
        },
    ),
    "domain_user": (
        "domain",
        {
            "domain_config": {"read"},
            "domain_hosts": {"search", "read"},
            "instances": {"search"},
            "domain_appconfig": {"search"},
            "domain_appconfig_element": {"read"},
        },
    ),
    "instance_administrator": ("instance", INSTANCE_ADMINISTRATOR),
    "instance_user": (
        "instance",
        {
            "instance": {"search"},
            "instance_config": {"read"},
            "instance_hosts": {"search", "read"},
            "jobs": {"search", "add"},
            "job_group": {"add"},
            "application_log": {"read"},
            "instance_appconfig": {"search", "add"},
            "instance_appconfig_element": {"read", "write", "delete"},
        },
    ),
}


@pytest.fixture(scope="module")
def program(tools: Tools) -> Program:
    return load_program(tools.policies / "streams" / "teracloud.yaml")


def test_every_permission_line(tools: Tools, program: Program) -> None:
    assert tools.compiled_table(program) == tools.read_table(DOMAIN + INSTANCE + JOB)


def test_every_line_is_cited(tools: Tools) -> None:
    assert tools.cited_lines("streams/teracloud.yaml") == {3, 4, *range(7, 25), *range(27, 55)}


def test_overriding_requires_a_second_permission(tools: Tools, program: Program) -> None:
    row = tools.compiled_row(program, program.rules["job_group", "submit"], frozenset({"override"}))
    assert row.requires == tools.read_sets("add (job_group) and add (jobs_override)")


def test_default_roles(program: Program) -> None:
    assert {
        name: (role.scope, {type_: set(privileges) for type_, privileges in role.grants})
        for name, role in program.roles.items()
    } == ROLES


def test_default_roles_hold_only_required_privileges(tools: Tools, program: Program) -> None:
    required = {
        atom
        for flags in (frozenset[str](), frozenset({"override"}))
        for row in tools.compiled_table(program, flags).values()
        for atoms in (*row.requires, *(row.each or ()))
        for atom in atoms
    }
    granted = {
        f"{p} ({type_})" for _, grants in ROLES.values() for type_, privileges in grants.items() for p in privileges
    }
    assert granted <= required
    assert {atom for atom in required - granted if not atom.endswith(("(job)", "(source)"))} == set()


def test_privileges_can_be_granted_where_some_row_or_role_has_them(program: Program) -> None:
    grantable = {(p, type_) for _, grants in ROLES.values() for type_, privileges in grants.items() for p in privileges}
    grantable |= {(p, "job") for p in ("read", "write", "add", "delete")}
    assert {(p.name, type_) for p in program.privileges.values() for type_ in p.on} == grantable


def test_owners_hold_all_rights_on_what_they_made(program: Program) -> None:
    owner = program.semantics.owner
    assert owner is not None
    assert owner.creator
    assert program.sets == {"own": ("add", "read", "search", "delete", "write")}
    assert owner.holds == program.sets["own"] == tuple(program.privileges)
    assert program.semantics.inheritance == "none"
    assert program.semantics.deny == "none"


@pytest.mark.parametrize(
    ("type_", "title", "parent", "single"),
    [
        ("domain_config", "config", "domain", True),
        ("domain_hosts", "hosts", "domain", True),
        ("instances", None, "domain", True),
        ("domain_system_log", "system-log", "domain", True),
        ("domain_appconfig", "appconfig", "domain", True),
        ("instance", None, "domain", False),
        ("instance_config", "config", "instance", True),
        ("instance_hosts", "hosts", "instance", True),
        ("jobs_override", "jobs-override", "instance", True),
        ("application_log", "application-log", "instance", True),
        ("instance_system_log", "system-log", "instance", True),
        ("instance_appconfig", "appconfig", "instance", True),
        ("job", None, "job_group", False),
    ],
)
def test_objects(program: Program, type_: str, title: str | None, parent: str, single: bool) -> None:
    entity = program.entities[type_]
    assert (entity.title, entity.parent, entity.single) == (title, parent, single)


def test_contradictions_are_recorded(program: Program) -> None:
    assert {key for key, rule in program.rules.items() if rule.ambiguous is not None} == {
        ("domain_hosts", "remove_tags"),
        *((f"{scope}_appconfig", "create") for scope in ("domain", "instance")),
        *((f"{scope}_appconfig_element", "create") for scope in ("domain", "instance")),
        ("instance", "create"),
        ("instance", "copy"),
        ("instance", "view_instance_logs"),
        ("instance", "view_application_logs"),
        ("instance_config", "manage_resource_specifications"),
        ("instance_hosts", "remove_specification"),
        ("instance_hosts", "modify_specification"),
        *(("job_group", name) for name in ("create", "remove", "submit", "get_job_state", "list_jobs", "list_pes")),
        *((type_, "view_application_logs") for type_ in ("job_group", "job")),
        *(("job", name) for name in ("update_pe", "restart_pe", "get_state", "list", "list_pes")),
        *(("instance_system_log", f"{verb}_application_logs") for verb in ("view", "get")),
    }


@pytest.mark.slow
def test_every_reading_compiles(tools: Tools, program: Program) -> None:
    rules = {f"{r.entity}/{r.operation}": r for r in program.rules.values() if r.ambiguous is not None}
    for row, rule in rules.items():
        assert rule.ambiguous is not None
        for name, _ in rule.ambiguous.readings:
            other = load_program(tools.policies / "streams" / "teracloud.yaml", readings={row: name})
            read = tools.compiled_row(other, other.rules[rule.entity, rule.operation])
            assert read != tools.compiled_row(program, rule), (row, name)


@pytest.mark.parametrize("operation", ["update_pe", "restart_pe"])
def test_one_object_has_both_permissions_or_by_the_other_reading_each_may_have_one(
    tools: Tools, program: Program, operation: str
) -> None:
    row = program.rules["job", operation]
    other = load_program(tools.policies / "streams" / "teracloud.yaml", readings={f"job/{operation}": "either_object"})
    mixed = frozenset({"add (job_group)", "delete (job)"})
    assert mixed not in tools.compiled_row(program, row).requires
    assert mixed in tools.compiled_row(other, other.rules["job", operation]).requires
