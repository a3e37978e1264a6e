# Idle Reaper on Google Cloud: a service account, and custom roles in each project that it watches.
#
#   terraform apply -var home=ops-project -var 'projects=["ml-research","ml-eval"]' -var act=false
#
# `act` adds the role that stops, suspends and starts; `snapshots` and `terminate` those for the actions of these names. For
# projects below an organisation's folders, `organization` and `below` let it find them; what it may
# do there is still granted project by project. Keys in another project are told from usable ones only with cloudkms.cryptoKeys.get there. Where the machines that may be touched carry a resource tag (not a label: IAM
# does not see labels), `only_tag` narrows that role to them, as "123456789012/reaper" and "yes".

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

variable "home" {
  description = "The project that the service account lives in."
  type        = string
}

variable "projects" {
  description = "The projects to watch: clouds.gcp.projects of the configuration."
  type        = set(string)
}

variable "act" {
  description = "Whether it may stop machines and start again what it stopped."
  type        = bool
  default     = false
}

variable "snapshots" {
  description = "Whether it may snapshot the disks of machines that it stopped."
  type        = bool
  default     = false
}

variable "terminate" {
  description = "Whether it may end machines whose disks have verified snapshots."
  type        = bool
  default     = false
}

variable "organization" {
  description = "The organisation whose projects and folders it may find: clouds.gcp.below. Null: none."
  type        = string
  default     = null
}

variable "below" {
  description = "The folders, as \"folders/123456789012\", that it looks below. Empty: the whole organisation."
  type        = set(string)
  default     = []
}

variable "only_tag" {
  description = "A resource tag that a machine must carry to be stopped or started. Null: any machine of the projects."
  type = object({
    key   = string
    value = string
  })
  default = null
}

variable "impersonated_by" {
  description = "Who may impersonate it, as \"serviceAccount:reaper@ops.iam.gserviceaccount.com\". Empty: it runs as itself."
  type        = set(string)
  default     = []
}

resource "google_service_account" "reaper" {
  project      = var.home
  account_id   = "idle-reaper"
  display_name = "Idle Reaper"
}

resource "google_service_account_iam_member" "impersonation" {
  for_each           = var.impersonated_by
  service_account_id = google_service_account.reaper.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = each.value
}

resource "google_project_iam_custom_role" "reader" {
  for_each    = var.projects
  project     = each.value
  role_id     = "idleReaperReader"
  title       = "Idle Reaper: reader"
  permissions = local.reader_permissions
}

resource "google_project_iam_member" "reader" {
  for_each = var.projects
  project  = each.value
  role     = google_project_iam_custom_role.reader[each.value].id
  member   = google_service_account.reaper.member
}

resource "google_project_iam_custom_role" "actor" {
  for_each    = var.act ? var.projects : toset([])
  project     = each.value
  role_id     = "idleReaperActor"
  title       = "Idle Reaper: actor"
  permissions = local.actor_permissions
}

resource "google_project_iam_member" "actor" {
  for_each = var.act ? var.projects : toset([])
  project  = each.value
  role     = google_project_iam_custom_role.actor[each.value].id
  member   = google_service_account.reaper.member

  dynamic "condition" {
    for_each = var.only_tag == null ? [] : [var.only_tag]
    content {
      title      = "only machines with the tag"
      expression = "resource.matchTag('${condition.value.key}', '${condition.value.value}')"
    }
  }
}

resource "google_project_iam_custom_role" "snapshots" {
  for_each    = var.snapshots ? var.projects : toset([])
  project     = each.value
  role_id     = "idleReaperSnapshots"
  title       = "Idle Reaper: snapshots"
  permissions = local.snapshots_permissions
}

resource "google_project_iam_member" "snapshots" {
  for_each = var.snapshots ? var.projects : toset([])
  project  = each.value
  role     = google_project_iam_custom_role.snapshots[each.value].id
  member   = google_service_account.reaper.member
}

resource "google_project_iam_custom_role" "terminate" {
  for_each    = var.terminate ? var.projects : toset([])
  project     = each.value
  role_id     = "idleReaperTerminate"
  title       = "Idle Reaper: terminate"
  permissions = local.terminate_permissions
}

resource "google_project_iam_member" "terminate" {
  for_each = var.terminate ? var.projects : toset([])
  project  = each.value
  role     = google_project_iam_custom_role.terminate[each.value].id
  member   = google_service_account.reaper.member

  dynamic "condition" {
    for_each = var.only_tag == null ? [] : [var.only_tag]
    content {
      title      = "only machines with the tag"
      expression = "resource.matchTag('${condition.value.key}', '${condition.value.value}')"
    }
  }
}

resource "google_organization_iam_custom_role" "folders" {
  count       = var.organization == null ? 0 : 1
  org_id      = var.organization
  role_id     = "idleReaperFolders"
  title       = "Idle Reaper: folders"
  permissions = local.folders_permissions
}

resource "google_organization_iam_member" "folders" {
  count  = var.organization != null && length(var.below) == 0 ? 1 : 0
  org_id = var.organization
  role   = google_organization_iam_custom_role.folders[0].id
  member = google_service_account.reaper.member
}

resource "google_folder_iam_member" "folders" {
  for_each = var.organization == null ? toset([]) : var.below
  folder   = each.value
  role     = google_organization_iam_custom_role.folders[0].id
  member   = google_service_account.reaper.member
}

output "service_account" {
  description = "For clouds.gcp.service_account, or for the machine that the reaper runs on."
  value       = google_service_account.reaper.email
}
