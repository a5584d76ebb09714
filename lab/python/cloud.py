# SPDX-License-Identifier: Apache-2.0
"""The few OpenStack calls that the lab itself needs, over plain HTTP from the standard library.

One process instead of one command-line client per call: each start of that client costs two seconds
of a core. All verbs are safe to repeat.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

SERVICES = [
    ("placement", "placement", 8778, ""),
    ("glance", "image", 9292, ""),
    ("neutron", "network", 9696, ""),
    ("nova", "compute", 8774, "/v2.1"),
]


class Cloud:
    """A token and the addresses behind it."""

    def __init__(self, auth, password):
        self.auth = auth
        self.password = password
        self.token = None
        self.compute = auth.replace(":5000/v3", ":8774/v2.1")
        self.image = auth.replace(":5000/v3", ":9292/v2")
        self.network = auth.replace(":5000/v3", ":9696/v2.0")
        self.placement = auth.replace(":5000/v3", ":8778")

    def login(self):
        user = {"name": "admin", "password": self.password, "domain": {"id": "default"}}
        scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
        body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
        with self._open("POST", f"{self.auth}/auth/tokens", body) as answer:
            self.token = answer.headers["X-Subject-Token"]

    def call(self, method, url, body=None, raw=None):
        with self._open(method, url, body, raw) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _open(self, method, url, body=None, raw=None):
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        kind = "application/octet-stream" if raw is not None else "application/json"
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
        if url.startswith(self.compute):
            request.add_header("OpenStack-API-Version", "compute 2.90")
        if self.token:
            request.add_header("X-Auth-Token", self.token)
        return urllib.request.urlopen(request, timeout=30)


def until(what, seconds, attempt):
    """Repeats an attempt that may fail while a service starts; its last error is part of the message."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except (OSError, urllib.error.URLError, NotYet) as error:
            if time.monotonic() > deadline:
                sys.exit(f"lab: ERROR: gave up after {seconds} s waiting for {what}: {error}")
            time.sleep(0.3)


class NotYet(Exception):
    """An answer that is not the wanted one."""


def prepare(cloud, args):
    """Waits for every service and puts in what servers are made from."""
    until("keystone", 300, cloud.login)
    # This Neutron answers 500 to the first list of ports in its life unless networks came first.
    until("neutron", 300, lambda: cloud.call("GET", f"{cloud.network}/networks"))
    until("placement", 300, lambda: cloud.call("GET", f"{cloud.placement}/resource_providers"))
    until("glance", 300, lambda: cloud.call("GET", f"{cloud.image}/images"))
    until("nova", 300, lambda: cloud.call("GET", f"{cloud.compute}/flavors"))
    flavors(cloud)
    images(cloud, args.folder)


def catalogue(cloud, args):
    """Users, services and endpoints."""
    until("keystone", 300, cloud.login)
    projects = cloud.call("GET", f"{cloud.auth}/projects?name=service")["projects"]
    if projects:
        project = projects[0]
    else:
        project = cloud.call("POST", f"{cloud.auth}/projects", {"project": {"name": "service", "domain_id": "default"}})["project"]
    role = cloud.call("GET", f"{cloud.auth}/roles?name=admin")["roles"][0]
    known = {service["type"] for service in cloud.call("GET", f"{cloud.auth}/services")["services"]}
    for name, kind, port, path in SERVICES:
        if kind in known:
            continue
        user = {"name": name, "domain_id": "default", "password": args.service_password}
        user = cloud.call("POST", f"{cloud.auth}/users", {"user": user})["user"]
        cloud.call("PUT", f"{cloud.auth}/projects/{project['id']}/users/{user['id']}/roles/{role['id']}")
        service = cloud.call("POST", f"{cloud.auth}/services", {"service": {"name": name, "type": kind}})["service"]
        for interface in ("public", "internal", "admin"):
            endpoint = {"service_id": service["id"], "interface": interface, "region_id": "RegionOne",
                        "url": f"http://{args.address}:{port}{path}"}
            cloud.call("POST", f"{cloud.auth}/endpoints", {"endpoint": endpoint})


def flavors(cloud):
    known = {flavor["name"] for flavor in cloud.call("GET", f"{cloud.compute}/flavors")["flavors"]}
    for name, ram in (("nano", 64), ("small", 256)):
        if name not in known:
            flavor = {"name": name, "ram": ram, "vcpus": 1, "disk": 1, "id": name}
            cloud.call("POST", f"{cloud.compute}/flavors", {"flavor": flavor})


# The whole of a guest that hangs once: it finds its i6300esb watchdog on the PCI bus, lets it run with its fast clock (due
# after two seconds) and then does nothing. A mark in the CMOS, which survives a reset but not a power cut, keeps it from
# doing so again.
HANGS_ONCE = bytes.fromhex(
    "fab051e670e4713ca57433b051e670b0a5e67166b9000000806689c8baf80c66efbafc0c66ed663d8680ab2574136681c1"
    "000800006681f90000018075dbf4ebfd67668d4160baf80c66efbafc0cb80400ef67668d4168baf80c66efbafc0cb002eeebda"
)


def images(cloud, folder):
    """A small empty disk, whose guest sits in the firmware, which is all that moving it around takes; and one whose
    guest hangs, with a watchdog that pauses it."""
    known = {image["name"] for image in cloud.call("GET", f"{cloud.image}/images")["images"]}
    if "tiny" not in known:
        path = os.path.join(folder, "tiny.qcow2")
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "8M"], check=True)
        with open(path, "rb") as disk:
            image(cloud, {"name": "tiny", "disk_format": "qcow2"}, disk.read())
        os.remove(path)
    if "hangs-once" not in known:
        disk = HANGS_ONCE.ljust(510, b"\0") + b"\x55\xaa"
        image(cloud, {"name": "hangs-once", "disk_format": "raw", "hw_watchdog_action": "pause"}, disk.ljust(1 << 20, b"\0"))


def image(cloud, about, disk):
    made = cloud.call("POST", f"{cloud.image}/images", {"container_format": "bare", "visibility": "public", **about})
    cloud.call("PUT", f"{cloud.image}/images/{made['id']}/file", raw=disk)


def computes(cloud, args):
    """Waits until every named host reports up and Nova has mapped it into the cell."""
    cloud.login()

    def attempt():
        found = cloud.call("GET", f"{cloud.compute}/os-hypervisors/detail")["hypervisors"]
        up = {item["hypervisor_hostname"] for item in found if item["state"] == "up"}
        missing = set(args.hosts) - up
        if missing:
            raise NotYet("not up: " + " ".join(sorted(missing)))

    until("nova-compute", args.seconds, attempt)


def look(cloud, _args):
    cloud.login()
    print("COMPUTE   STATUS    STATE  FORCED_DOWN  UPDATED")
    for item in cloud.call("GET", f"{cloud.compute}/os-services?binary=nova-compute")["services"]:
        print(f"{item['host']:<9} {item['status']:<9} {item['state']:<6} {str(item['forced_down']).lower():<12} {item['updated_at']}")
    print("\nSERVER                                NAME             STATUS     HOST  TASK")
    for item in cloud.call("GET", f"{cloud.compute}/servers/detail?all_tenants=true")["servers"]:
        print(f"{item['id']}  {item['name']:<16} {item['status']:<10} {item['OS-EXT-SRV-ATTR:host'] or '-':<5} {item['OS-EXT-STS:task_state'] or '-'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--auth", required=True)
    parser.add_argument("--password", required=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("catalogue")
    for name in ("service-password", "address"):
        verb.add_argument(f"--{name}", required=True)
    verb.set_defaults(run=catalogue)
    verb = verbs.add_parser("prepare")
    verb.add_argument("--folder", required=True)
    verb.set_defaults(run=prepare)
    verb = verbs.add_parser("computes")
    verb.add_argument("--seconds", type=int, default=300)
    verb.add_argument("hosts", nargs="+")
    verb.set_defaults(run=computes)
    verbs.add_parser("look").set_defaults(run=look)
    args = parser.parse_args()
    args.run(Cloud(args.auth, args.password), args)


if __name__ == "__main__":
    main()
