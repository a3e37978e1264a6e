# The role by which Idle Reaper observes an account and, where asked for, acts in it.
#
#   module "idle_reaper" {
#     source      = "./deploy/iam/aws/terraform"
#     trusted_arn = "arn:aws:iam::999988887777:role/idle-reaper-hub"
#     external_id = "ml-7"
#     act         = true
#     scope       = { team = ["ml"] }
#     claim       = { key = "reaper", value = "ml-platform" }
#   }

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "trusted_arn" {
  description = "Who may assume the role: the role that Idle Reaper runs with."
  type        = string
}

variable "external_id" {
  description = "What it has to say when it does. Null: nothing."
  type        = string
  default     = null
}

variable "role_name" {
  description = "The role's name, as in clouds.aws.role of the configuration."
  type        = string
  default     = "idle-reaper"
}

variable "scope" {
  description = "Tags that a machine in scope carries, each with the values that count, as in [scope] of the configuration."
  type        = map(list(string))
  default     = { team = ["ml"] }

  validation {
    condition     = length(var.scope) > 0
    error_message = "An empty scope would let it act on every machine of the account."
  }
}

variable "claim" {
  description = "The tag that says which reaper may act, as in scope.claim of the configuration."
  type        = object({ key = string, value = string })
  default     = { key = "reaper", value = "ml-platform" }
}

variable "act" {
  description = "Whether it may stop and start machines in scope."
  type        = bool
  default     = false
}

variable "snapshot" {
  description = "Whether it may snapshot disks."
  type        = bool
  default     = false
}

variable "terminate" {
  description = "Whether it may end machines in scope."
  type        = bool
  default     = false
}

variable "hub" {
  description = "Whether this role reaches other accounts by their roles of the same name."
  type        = bool
  default     = false
}

data "aws_partition" "current" {}

locals {
  on_ours = merge(
    { for key, values in var.scope : "aws:ResourceTag/${key}" => values },
    { "aws:ResourceTag/${var.claim.key}" = [var.claim.value] },
  )
  guarded = concat(keys(var.scope), [var.claim.key])

  attached = {
    for name, document in {
      reader    = { wanted = true, text = jsonencode({ Version = "2012-10-17", Statement = local.reader }) }
      actor     = { wanted = var.act, text = jsonencode({ Version = "2012-10-17", Statement = local.actor }) }
      snapshots = { wanted = var.snapshot, text = jsonencode({ Version = "2012-10-17", Statement = local.snapshots }) }
      terminate = { wanted = var.terminate, text = jsonencode({ Version = "2012-10-17", Statement = local.terminate }) }
      hub       = { wanted = var.hub, text = jsonencode({ Version = "2012-10-17", Statement = local.hub }) }
    } : name => document.text if document.wanted
  }
}

resource "aws_iam_role" "this" {
  name = var.role_name
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [merge(
      { Effect = "Allow", Principal = { AWS = var.trusted_arn }, Action = "sts:AssumeRole" },
      var.external_id == null ? {} : { Condition = { StringEquals = { "sts:ExternalId" = var.external_id } } },
    )]
  })
}

resource "aws_iam_role_policy" "this" {
  for_each = local.attached

  name   = "idle-reaper-${each.key}"
  role   = aws_iam_role.this.id
  policy = each.value
}

output "role_arn" {
  value = aws_iam_role.this.arn
}
