# Made by `python -m reaper.clouds.gcp.roles deploy/iam/gcp` from what the calls need. Do not edit.
locals {
  reader_permissions = [
    "cloudkms.cryptoKeys.get",
    "compute.addresses.list",
    "compute.commitments.list",
    "compute.disks.list",
    "compute.instances.get",
    "compute.instances.list",
    "compute.machineTypes.get",
    "compute.resourcePolicies.list",
    "compute.snapshots.list",
    "compute.zoneOperations.get",
  ]
  actor_permissions = [
    "compute.instances.resume",
    "compute.instances.setLabels",
    "compute.instances.start",
    "compute.instances.stop",
    "compute.instances.suspend",
  ]
  snapshots_permissions = [
    "compute.disks.createSnapshot",
    "compute.disks.get",
    "compute.globalOperations.get",
    "compute.snapshots.create",
    "compute.snapshots.setLabels",
  ]
  terminate_permissions = [
    "compute.instances.delete",
  ]
  folders_permissions = [
    "resourcemanager.folders.list",
    "resourcemanager.projects.list",
  ]
}
