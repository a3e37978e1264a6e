# Made by `python -m reaper.clouds.gcp.roles deploy/iam/gcp` from what the calls need. Do not edit.
locals {
  reader_permissions = [
    "compute.instances.get",
    "compute.instances.list",
    "compute.machineTypes.get",
    "compute.resourcePolicies.list",
    "compute.zoneOperations.get",
  ]
  actor_permissions = [
    "compute.instances.setLabels",
    "compute.instances.start",
    "compute.instances.stop",
  ]
}
