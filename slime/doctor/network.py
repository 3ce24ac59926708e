"""Ports, and the interfaces that NCCL and gloo would use."""

from slime.doctor.finding import Finding, judge
from slime.doctor.machine import PORTS, Machine


def check_network(machine: Machine) -> list[Finding]:
    """Loopback, free ports, the host's name, and what the environment chooses."""
    return [
        _loopback(machine),
        _ports(machine),
        _host_name(machine),
        _nccl(machine),
        _gloo(machine),
    ]


def _loopback(machine: Machine) -> Finding:
    good = any("127.0.0.1" in addresses for addresses in machine.interfaces.values())
    found = "up" if good else "no interface has 127.0.0.1"
    return judge("loopback", good, found, "ip link set lo up: the router and engines listen there")


def _ports(machine: Machine) -> Finding:
    found = f"{machine.free_ports} of {PORTS} asked for"
    remedy = "end what holds them (ss -tan), or widen net.ipv4.ip_local_port_range"
    return judge("free ports", machine.free_ports == PORTS, found, remedy)


def _host_name(machine: Machine) -> Finding:
    address = machine.host_address
    if address is None:
        remedy = "add it to /etc/hosts: processes on several machines find each other by it"
        return Finding("host name", "note", "does not resolve", remedy)
    own = {one for addresses in machine.interfaces.values() for one in addresses}
    if address not in own and not address.startswith("127."):
        remedy = "correct it in /etc/hosts: other machines would be sent elsewhere"
        return Finding("host name", "note", f"{address} is no address of this machine", remedy)
    return Finding("host name", "ok", address)


def _nccl(machine: Machine) -> Finding:
    """NCCL_SOCKET_IFNAME: prefixes; `=` in front means exact names, `^` all but these."""
    value = machine.environment.get("NCCL_SOCKET_IFNAME", "")
    usable = _usable(machine)
    if not value:
        if len(usable) <= 1 or machine.device == "cpu":
            return Finding("NCCL interface", "ok", ", ".join(usable) or "loopback only")
        remedy = "name the cluster's: export NCCL_SOCKET_IFNAME=..."
        return Finding("NCCL interface", "note", f"any of {', '.join(usable)}", remedy)
    names = value.lstrip("^=").split(",")
    matches = [
        name
        for name in machine.interfaces
        if (name in names if value.startswith(("=", "^=")) else name.startswith(tuple(names)))
    ]
    chosen = sorted(set(usable) - set(matches)) if value.startswith("^") else matches
    found = f"NCCL_SOCKET_IFNAME={value}: {', '.join(chosen) or 'no interface that is up'}"
    return judge("NCCL interface", bool(chosen), found, _choose("NCCL_SOCKET_IFNAME", machine))


def _gloo(machine: Machine) -> Finding:
    """GLOO_SOCKET_IFNAME: exact names."""
    value = machine.environment.get("GLOO_SOCKET_IFNAME", "")
    if not value:
        return Finding("gloo interface", "ok", "that of the host name; loopback within a machine")
    missing = [name for name in value.split(",") if name not in machine.interfaces]
    found = f"GLOO_SOCKET_IFNAME={value}"
    if missing:
        found += f": {', '.join(missing)} is not up"
    return judge("gloo interface", not missing, found, _choose("GLOO_SOCKET_IFNAME", machine))


def _usable(machine: Machine) -> list[str]:
    """Interfaces that reach other machines, going by names and addresses."""
    virtual = ("lo", "docker", "veth", "br-", "virbr")
    return [
        name
        for name, addresses in machine.interfaces.items()
        if addresses and not name.startswith(virtual)
    ]


def _choose(variable: str, machine: Machine) -> str:
    return f"unset {variable}, or set it to one of {', '.join(sorted(machine.interfaces))}"
