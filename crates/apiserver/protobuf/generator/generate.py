#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of protobuf messages of the built-in Kubernetes kinds.

    generator/generate.py CHECKOUT [--text]

CHECKOUT is a work tree of kubernetes/kubernetes at the release the table is for. The wire facts
(number, type, cardinality) come from its generated.proto files, the JSON facts (name, inline,
pointer, omitempty) from the struct tags of its Go types; both are matched by message and number.
The result replaces src/table.z next to this script; --text prints it before compression instead.

The table is lines of text:

    = <apiVersion> <Kind> <message>     a kind and the number of its message
    @ <Kind> <message>                  a kind that exists in every group version
    <form> <field>...                   a message; the n-th such line is message n
    field: <number>[r|k]<type>[*][!][?][~]:<JSON name>

r is repeated, k a map with string keys. Types: s string, b bool, i int32, l int64, d double,
y bytes, m<n> message. A field marked * is a pointer in Go (a given zero is kept), ! is written
even when zero, ? is left out when its struct is zero, ~ is inlined into its parent.
"""

import pathlib
import re
import sys
import zlib

GROUPS = {  # package below k8s.io -> (group, kinds)
    "api/core/v1": ("", "Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume "
                    "PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service "
                    "ServiceAccount"),
    "api/apps/v1": ("apps", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
    "api/batch/v1": ("batch", "CronJob Job"),
    "api/autoscaling/v1": ("autoscaling", "HorizontalPodAutoscaler Scale"),
    "api/autoscaling/v2": ("autoscaling", "HorizontalPodAutoscaler"),
    "api/policy/v1": ("policy", "Eviction PodDisruptionBudget"),
    "api/networking/v1": ("networking.k8s.io", "Ingress IngressClass NetworkPolicy"),
    "api/discovery/v1": ("discovery.k8s.io", "EndpointSlice"),
    "api/coordination/v1": ("coordination.k8s.io", "Lease"),
    "api/events/v1": ("events.k8s.io", "Event"),
    "api/rbac/v1": ("rbac.authorization.k8s.io", "ClusterRole ClusterRoleBinding Role RoleBinding"),
    "api/scheduling/v1": ("scheduling.k8s.io", "PriorityClass"),
    "api/storage/v1": ("storage.k8s.io", "CSIDriver CSINode StorageClass VolumeAttachment"),
    "api/node/v1": ("node.k8s.io", "RuntimeClass"),
    "apiextensions-apiserver/pkg/apis/apiextensions/v1": ("apiextensions.k8s.io", "CustomResourceDefinition"),
    "api/admissionregistration/v1": (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"),
    "api/authentication/v1": ("authentication.k8s.io", "SelfSubjectReview TokenRequest TokenReview"),
    "api/authorization/v1": (
        "authorization.k8s.io",
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview"),
    "api/certificates/v1": ("certificates.k8s.io", "CertificateSigningRequest"),
    "kube-aggregator/pkg/apis/apiregistration/v1": ("apiregistration.k8s.io", "APIService"),
    "apimachinery/pkg/apis/meta/v1": ("", "Status"),
}
OPTIONS = "CreateOptions DeleteOptions GetOptions ListOptions PatchOptions UpdateOptions".split()
META = "k8s.io.apimachinery.pkg.apis.meta.v1."
CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
FORMS = {  # messages whose JSON is not that of a struct
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "quantity",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "intorstring",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "raw",
    META + "FieldsV1": "raw",
    META + "Time": "time",
    META + "MicroTime": "microtime",
    CRD + "JSON": "raw",
    CRD + "JSONSchemaPropsOrArray": "schemaorarray",
    CRD + "JSONSchemaPropsOrBool": "schemaorbool",
    CRD + "JSONSchemaPropsOrStringArray": "schemaorstrings",
}
SCALARS = {"string": "s", "bool": "b", "int32": "i", "int64": "l", "double": "d", "bytes": "y"}
FIELD = re.compile(r"(optional|repeated|map<\s*string\s*,)\s*([\w.]+)\s*(>?)\s+(\w+)\s*=\s*(\d+)\s*;")


def read_protos(root):
    """Message name -> [(number, cardinality, type, package)]."""
    messages = {}
    for path in sorted(root.rglob("generated.proto")):
        package, current = None, None
        for line in path.read_text().splitlines():
            line = line.split("//")[0].strip()
            if found := re.match(r"package ([\w.]+);", line):
                package = found[1]
            elif found := re.match(r"message (\w+) \{", line):
                current = messages.setdefault(f"{package}.{found[1]}", [])
            elif found := FIELD.match(line):
                card = {"o": "", "r": "r", "m": "k"}[found[1][0]]
                current.append((int(found[5]), card, found[2], package))
            elif current is not None and "=" in line:
                sys.exit(f"{path}: not understood: {line}")
    return messages


def read_structs(folder):
    """Struct name -> {number: (JSON name, flags)}."""
    structs = {}
    for path in sorted(folder.glob("*.go")):
        if path.name.endswith("_test.go") or path.name.startswith(("zz_", "generated")):
            continue
        current = None
        for line in path.read_text().splitlines():
            if found := re.match(r"type (\w+) struct \{", line):
                current = structs.setdefault(found[1], {})
            elif line.startswith("}"):
                current = None
            elif current is not None and (found := re.match(r"\s+(?:(\w+)\s+)?([\w.*\[\]]+)\s+`(.*)`", line)):
                json = re.search(r'json:"([^"]*)"', found[3])
                wire = re.search(r'protobuf:"([^"]*)"', found[3])
                if not json or not wire or wire[1] == "-":
                    continue
                name, *options = json[1].split(",")
                flags = "*" if found[2].startswith("*") else ""
                flags += "" if {"omitempty", "omitzero", "inline"} & set(options) else "!"
                flags += "?" if "omitzero" in options else ""
                flags += "~" if "inline" in options or not name else ""
                current[int(wire[1].split(",")[1])] = (name, flags)
    return structs


def main():
    checkout = pathlib.Path(sys.argv[1]) / "staging/src/k8s.io"
    protos = read_protos(checkout)
    structs = {}
    order, queue = {}, []

    def number(message):
        if message not in order:
            order[message] = len(order)
            queue.append(message)
        return order[message]

    def proto_name(package, message):
        return "k8s.io." + package.replace("/", ".").replace("-", "_") + "." + message

    heads, lines = [], []
    for package, (group, kinds) in GROUPS.items():
        version = package.rsplit("/", 1)[1]
        for kind in kinds.split():
            api_version = f"{group}/{version}" if group else version
            heads.append(f"= {api_version} {kind} {number(proto_name(package, kind))}")
    for kind in OPTIONS:
        heads.append(f"@ {kind} {number(META + kind)}")

    done = 0
    while done < len(queue):
        message = queue[done]
        done += 1
        package, short = message.rsplit(".", 1)
        fields = protos[message]
        form = FORMS.get(message, "struct")
        if form == "struct":
            if package not in structs:
                folder = package.removeprefix("k8s.io.").replace(".", "/").replace("_", "-")
                structs[package] = read_structs(checkout / folder)
            tags = structs[package].get(short)
            if not tags and len(fields) == 1 and fields[0][1] == "r":
                form, tags = "list", {1: ("items", "")}
            elif tags is None and fields:
                sys.exit(f"{message}: no Go struct")
        else:
            tags = {field[0]: (str(field[0]), "*") for field in fields}
        parts = []
        for at, card, kind, home in sorted(fields):
            if at not in tags:
                sys.exit(f"{message}: no Go field with number {at}")
            name, flags = tags[at]
            if kind in SCALARS:
                code = SCALARS[kind]
            else:
                full = kind[1:] if kind.startswith(".") else f"{home}.{kind}"
                if full not in protos:
                    sys.exit(f"{message}: unknown type {kind}")
                code = f"m{number(full)}" if form not in ("raw", "time", "microtime") else "s"
            parts.append(f"{at}{card}{code}{flags}:{name}")
        lines.append((message, " ".join([form, *parts])))
    if "--text" in sys.argv:
        print("\n".join(heads))
        print("\n".join(f"{line}   # {message}" for message, line in lines))
        return
    text = "\n".join(heads + [line for _, line in lines]) + "\n"
    target = pathlib.Path(__file__).parent.parent / "src/table.z"
    target.write_bytes(zlib.compress(text.encode(), 9))
    print(f"{len(lines)} messages, {len(text)} bytes of text, {target.stat().st_size} compressed")


main()
