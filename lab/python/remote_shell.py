# SPDX-License-Identifier: Apache-2.0
"""As much of ssh as Nova needs between the lab's hosts, over the lab's own wires.

A cold migration makes nova-compute touch files on the other host by "ssh HOST COMMAND". The server
runs what it is told by whoever knows the key of this lab, a file in its folder that only root can
read. A host that is off or cut off does not answer, as with ssh.

    remote_shell.py serve ADDRESS
    remote_shell.py [ssh's options] HOST COMMAND...
"""
import hmac
import json
import os
import secrets
import socket
import socketserver
import subprocess
import sys

PORT = 22
LONGEST = 1 << 20
SECONDS = 120
FAILED = 255  # what ssh ends with when it is its own fault
WITH_VALUE = ("-o", "-p", "-l", "-i", "-F")


def key():
    """The key of this lab; whoever asks first makes it."""
    path = os.path.join(os.environ["LAB_DIR"], "remote-shell.key")
    if not os.path.exists(path):
        mine = f"{path}.{secrets.token_hex(8)}"
        with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        os.unlink(mine)
    with open(path, encoding="ascii") as file:
        return file.read()


class Session(socketserver.StreamRequestHandler):
    """One command: a line with it comes in, a line with how it ended goes out."""

    timeout = SECONDS

    def handle(self):
        theirs, command = json.loads(self.rfile.readline(LONGEST))
        if not hmac.compare_digest(theirs, key()):
            print(f"{self.client_address[0]}: refused", flush=True)
            return
        print(f"{self.client_address[0]}: {command}", flush=True)
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
            )
            answer = [done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")]
        except subprocess.TimeoutExpired:
            answer = [FAILED, "", f"{command!r} did not end within {SECONDS} s\n"]
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    """Commands of several hosts at once."""

    allow_reuse_address = True
    daemon_threads = True


def run(arguments):
    """Runs a command elsewhere; its output and its end become ours."""
    arguments = list(arguments)
    while arguments and arguments[0].startswith("-"):
        del arguments[: 2 if arguments[0] in WITH_VALUE else 1]
    if len(arguments) < 2:
        raise SystemExit("usage: ssh [OPTION...] HOST COMMAND...")
    host = arguments.pop(0).rpartition("@")[2]
    try:
        with socket.create_connection((host, PORT), timeout=10) as wire:
            wire.settimeout(SECONDS + 10)
            # ssh hands its words over as one line for the other shell, and so does this.
            wire.sendall(json.dumps([key(), " ".join(arguments)]).encode() + b"\n")
            code, out, err = json.loads(wire.makefile("rb").readline())
    except (OSError, ValueError) as error:
        print(f"ssh: {host} does not answer: {error}", file=sys.stderr)
        return FAILED
    sys.stdout.write(out)
    sys.stderr.write(err)
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        Server((sys.argv[2], PORT), Session).serve_forever()
    sys.exit(run(sys.argv[1:]))
