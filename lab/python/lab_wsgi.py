# SPDX-License-Identifier: Apache-2.0
"""What uwsgi loads: the packaged WSGI application named by LAB_WSGI behind the lab's fault filter."""
import os

from lab_slow import Slow


def load(service):
    if service == "keystone":
        from keystone.server.wsgi import initialize_public_application
        return initialize_public_application()
    if service == "placement":
        from placement.wsgi import init_application
        return init_application()
    raise SystemExit(f"no WSGI application named {service}")


application = Slow(load(os.environ["LAB_WSGI"]), os.environ["LAB_WSGI"])
