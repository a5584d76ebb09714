# SPDX-License-Identifier: Apache-2.0
"""A fault in front of an OpenStack API: late answers, or none but an error.

Every request looks into LAB_DIR/faults/api-SERVICE, which holds "MILLISECONDS STATUS". No file, no
fault. It is a WSGI filter of its own, so that the service behind it is exactly the packaged one.
"""
import os
import time


class Slow:
    """Delays or refuses requests of one service while its fault file is there."""

    def __init__(self, application, service):
        self._application = application
        self._fault = os.path.join(os.environ["LAB_DIR"], "faults", f"api-{service}")

    def __call__(self, environ, start_response):
        delay, status = self._read()
        if delay:
            time.sleep(delay / 1000)
        if status:
            body = b'{"error": {"message": "fault injected by the lab"}}'
            start_response(f"{status} Lab", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
            return [body]
        return self._application(environ, start_response)

    def _read(self):
        try:
            with open(self._fault, encoding="ascii") as fault:
                delay, status = fault.read().split()
            return int(delay), int(status)
        except (OSError, ValueError):
            return 0, 0


def factory(_global_config, service):
    """The entry that paste's configuration names."""
    return lambda application: Slow(application, service)
