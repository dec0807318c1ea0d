"""The lab's networks: one management bridge that this machine can reach, and per lab a fabric that it cannot.

No route leads out of either. A host's side of the cables is a network namespace of its own, made before
the host boots and kept while it is off, so a crash or a reboot does not lose an address.
"""

import json
import os
from pathlib import Path
from typing import Any

from lab.shell import call
from lab.state import Host, fabric_of
from sparkfleet.errors import UserError

BRIDGE = "sparklab"
MANAGEMENT = "enP7s7"  #: as the 10 GbE port of a Spark is called
ADDRESS = "198.51.100.1/24"  # of this machine on the management bridge; a range reserved for documentation
SWITCHES = {"enp1s0f0np0": "twin0", "enP2p1s0f0np0": "twin1"}  # a twin's interface -> its bridge in the fabric
BRIDGE_MAC = "02:53:50:00:00:01"  # fixed, as the hosts' are: what took over an address is reached at once
JUMBO = 9000
NUMBERS = range(11, 121)  #: host numbers: both twins' addresses fit their /25


def cable(host: Host, interface: str = MANAGEMENT) -> str:
    """Name of the far end of one of a host's cables (at most 15 characters)."""
    return f"{BRIDGE}{host.number}" if interface == MANAGEMENT else f"{SWITCHES[interface]}-{host.number}"


def mac(host: Host, cable_number: int) -> str:
    return f"02:53:50:00:{cable_number:02x}:{host.number:02x}"


def ensure_management() -> None:
    """The management bridge with this machine's address on it; the caller holds the lock over all labs."""
    links = _links()
    if BRIDGE not in links:
        _refuse_taken_range()
        ip(f"link add {BRIDGE} address {BRIDGE_MAC} type bridge")
    ip(f"link set {BRIDGE} up", f"addr replace {ADDRESS} dev {BRIDGE}")


def remove_management() -> None:
    if BRIDGE in _links():
        ip(f"link delete {BRIDGE}")


def ensure_fabric(lab: str) -> None:
    """The lab's fabric: a switch per twin. On a fresh namespace; whatever firewall this machine has is not in it."""
    netns = fabric_of(lab)
    if os.path.ismount(netns):
        return
    _pin_namespace(netns)
    for switch in SWITCHES.values():
        ip(f"link add {switch} mtu {JUMBO} type bridge", f"link set {switch} up", inside=netns)


def connect(host: Host) -> None:
    """A host's network namespace with its three cables plugged in and its addresses set."""
    netns, fabric = host.place.netns, fabric_of(host.lab)
    _pin_namespace(netns)
    end = cable(host)
    ip(
        f"link add {end} type veth peer name {MANAGEMENT} address {mac(host, 0)} netns {netns}",
        f"link set {end} alias sparkfleet-lab:{host.lab}/{host.name}",
        f"link set {end} master {BRIDGE} up",
    )
    inside = ["link set lo up", f"addr add {host.address}/24 dev {MANAGEMENT}", f"link set {MANAGEMENT} up"]
    for number, (interface, address) in enumerate(host.fabric.items(), start=1):
        end, near = cable(host, interface), f"{interface} address {mac(host, number)} mtu {JUMBO}"
        ip(
            f"link add {end} mtu {JUMBO} type veth peer name {near} netns {netns}",
            f"link set {end} master {SWITCHES[interface]} up",
            inside=fabric,
        )
        inside += [f"addr add {address}/25 dev {interface}", f"link set {interface} up"]
    ip(*inside, inside=netns)


def plug(host: Host, interface: str, up: bool) -> None:
    """Pull a cable out of a host, or put it back: the host sees its carrier go and come."""
    state = "up" if up else "down"
    ip(f"link set {cable(host, interface)} {state}", inside=None if interface == MANAGEMENT else fabric_of(host.lab))


def disconnect(lab: str, name: str) -> None:
    """Remove this machine's end of the cables of a host, which removes the other end too."""
    for link, about in _links().items():
        if about.get("ifalias") == f"sparkfleet-lab:{lab}/{name}":
            ip(f"link delete {link}")


def ip(*commands: str, inside: Path | None = None) -> None:
    """Run commands of ip(8) in order, in this machine's network or in a pinned network namespace."""
    enter = ["nsenter", f"--net={inside}"] if inside else []
    try:
        call([*enter, "ip", "-batch", "-"], stdin="\n".join(commands) + "\n")
    except UserError as error:
        raise UserError(f"The lab's network: `ip {commands[0]}` and what follows it: {error}") from error


def _links() -> dict[str, dict[str, Any]]:
    return {link["ifname"]: link for link in json.loads(call(["ip", "-json", "link"])) if "ifname" in link}


def _refuse_taken_range() -> None:
    for route in json.loads(call(["ip", "-json", "route", "show", "root", "198.51.100.0/24"])):
        raise UserError(
            f"The lab uses 198.51.100.0/24, a range reserved for documentation, but this machine already has a "
            f"route to {route['dst']} over {route.get('dev', '?')}. Remove that route, or run the lab elsewhere."
        )


def _pin_namespace(path: Path) -> None:
    path.touch()
    call(["unshare", f"--net={path}", "true"])
