# SPDX-License-Identifier: Apache-2.0
"""A Redfish endpoint for one lab host: sushy-tools in front, the host's real power behind.

The power state that is reported is read from the kernel at every question: the host is on as long
as its first process is there. Switching is done by the lab's own commands, so that a person, a test
and a BMC all pull the same plug.
"""
import argparse
import os
import pathlib
import subprocess

import bcrypt
from sushy_tools import error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver


class LabHost(AbstractSystemsDriver):
    """The only computer system behind this endpoint."""

    def __init__(self, lab, host, machine):
        self._lab = lab
        self._host = host
        self._machine = pathlib.Path(machine)
        self._uuid = (self._machine / "uuid").read_text().strip()
        self._boot_device = "Hdd"

    @property
    def driver(self):
        return "<lab>"

    @property
    def systems(self):
        return [self._uuid]

    def uuid(self, identity):
        if identity == self._host:
            raise error.AliasAccessError(self._uuid)
        if identity != self._uuid:
            raise error.NotFound(f"there is no system {identity} behind the BMC of {self._host}")
        return self._uuid

    def name(self, identity):
        self.uuid(identity)
        return self._host

    def get_power_state(self, identity):
        self.uuid(identity)
        return "On" if self._is_on() else "Off"

    def set_power_state(self, identity, state):
        self.uuid(identity)
        if state in ("On", "ForceOn"):
            self._switch("boot", self._host, "--no-wait")
        elif state in ("ForceOff", "GracefulShutdown"):
            self._switch("kill", self._host)
        elif state in ("ForceRestart", "GracefulRestart"):
            self._switch("kill", self._host)
            self._switch("boot", self._host, "--no-wait")
        else:
            raise error.NotSupportedError(f"reset type {state} is not supported")

    def get_boot_device(self, identity):
        self.uuid(identity)
        return self._boot_device

    def set_boot_device(self, identity, boot_source):
        self.uuid(identity)
        self._boot_device = boot_source

    def get_boot_mode(self, identity):
        return "UEFI"

    def get_total_cpus(self, identity):
        return os.cpu_count()

    def get_nics(self, identity):
        return []

    def _is_on(self):
        try:
            pid, since = (self._machine / "init.pid").read_text().split()
            stat = pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            return False
        return stat[19] == since and stat[0] != "Z"

    def _switch(self, *command):
        done = subprocess.run([self._lab, *command], stdin=subprocess.DEVNULL, timeout=120, check=False)
        if done.returncode != 0:
            raise error.FishyError(f"'lab {' '.join(command)}' ended with {done.returncode}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("lab", "host", "machine", "state", "listen", "user"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()

    passwords = pathlib.Path(args.state, "htpasswd")
    # The cheapest bcrypt: the password is public, and every request computes it again.
    digest = bcrypt.hashpw(os.environ["BMC_PASSWORD"].encode(), bcrypt.gensalt(4))
    passwords.write_text(f"{args.user}:{digest.decode()}\n")

    driver = LabHost(args.lab, args.host, args.machine)
    type(emulator.app).systems = property(lambda app: driver)
    emulator.app.configure(extra_config={
        "SUSHY_EMULATOR_AUTH_FILE": str(passwords),
        "SUSHY_EMULATOR_STATE_DIR": args.state,
    })
    emulator.app.run(host=args.listen, port=args.port, threaded=True)


if __name__ == "__main__":
    main()
