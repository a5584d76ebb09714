# SPDX-License-Identifier: Apache-2.0
"""Starts one OpenStack service from its library package.

Debian puts the start scripts of Nova's services into packages that also bring system services;
the lab wants only the code. Usage: console.py MODULE NAME [ARGUMENT...]
"""
import importlib
import sys

module, name = sys.argv[1:3]
sys.argv = [name] + sys.argv[3:]
sys.exit(importlib.import_module(module).main())
