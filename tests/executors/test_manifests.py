"""The Kubernetes manifests in the documentation have the right settings and match KubeRay's schemas."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from securebench.executors.ray_slots import SLOT

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
VARIABLE = "SECUREBENCH_TEST_DATA"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the YAML documents in a manifest file."""
    return list(YAML(typ="safe", pure=True).load_all((GUIDES / name).read_text()))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    """Return the only document of ``kind`` in a manifest file."""
    [found] = [document for document in documents(name) if document["kind"] == kind]
    return found


def test_the_cluster_requires_a_token_and_has_slots() -> None:
    """A token is required, only workers have slots, and all pods have one image with the same version of Ray."""
    spec = of_kind("ray-cluster.yaml", "RayCluster")["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    head, [workers] = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert SLOT not in str(head["rayStartParams"])
    assert json.loads(json.loads(workers["rayStartParams"]["resources"]))[SLOT] > 0
    images = {container["image"] for group in (head, workers) for container in group["template"]["spec"]["containers"]}
    assert len(images) == 1
    assert all(image.endswith(f":{spec['rayVersion']}") for image in images)
    assert f"rayproject/ray:{spec['rayVersion']}-" in (GUIDES / "run-on-many-machines.md").read_text()


def test_the_job_runs_on_the_cluster() -> None:
    """The job selects the cluster of the other manifest, and its tester YAML is in a volume of that cluster."""
    cluster = of_kind("ray-cluster.yaml", "RayCluster")
    job = of_kind("ray-job.yaml", "RayJob")["spec"]
    assert job["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    assert "--executor ray --address auto" in job["entrypoint"]
    mounts = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert any(job["entrypoint"].split()[2].startswith(f"{mount['mountPath']}/") for mount in mounts)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kind", "definition"),
    [("ray-cluster.yaml", "RayCluster", "rayclusters"), ("ray-job.yaml", "RayJob", "rayjobs")],
)
def test_the_schemas_of_kuberay_accept_them(name: str, kind: str, definition: str) -> None:
    """Every field of the manifests exists and has the right type. KubeRay's definitions are not in the repository."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} is not set: it names a folder with kuberay/, which has the definitions of KubeRay")
    path = Path(os.environ[VARIABLE]) / "kuberay" / f"ray.io_{definition}.yaml.gz"
    found = YAML(typ="safe").load(gzip.decompress(path.read_bytes()))
    [version] = [version for version in found["spec"]["versions"] if version["storage"]]
    document = of_kind(name, kind)
    assert document["apiVersion"] == f"{found['spec']['group']}/{version['name']}"
    assert not list(faults(document, version["schema"]["openAPIV3Schema"], kind))


def faults(value: Any, schema: dict[str, Any], place: str) -> list[str]:
    """Return the faults of ``value`` according to a structural schema of Kubernetes."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{place}: neither a number nor a string"]
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "boolean": bool,
        "number": (int, float),
    }
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return [f"{place}: not of type {schema['type']}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place}: none of {schema['enum']}"]
    if isinstance(value, list):
        return [fault for one in value for fault in faults(one, schema["items"], f"{place}[]")]
    if not isinstance(value, dict) or place.endswith(".metadata"):
        return []
    problems = [f"{place}: lacks {name}" for name in schema.get("required", ()) if name not in value]
    for name, one in value.items():
        inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if isinstance(inner, dict):
            problems += faults(one, inner, f"{place}.{name}")
        elif inner is None and not schema.get("x-kubernetes-preserve-unknown-fields"):
            problems.append(f"{place}: has no field {name}")
    return problems
