# Made by `python -m reaper.clouds.aws.documents`; the permissions stand beside the calls in reaper/clouds/aws.
locals {
  reader = [
    {
      Sid      = "Observe"
      Effect   = "Allow"
      Action   = ["autoscaling:DescribeAutoScalingInstances", "ec2:DescribeAddresses", "ec2:DescribeImages", "ec2:DescribeInstanceAttribute", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ec2:DescribeRegions", "ec2:DescribeReservedInstances", "ec2:DescribeSnapshots", "ec2:DescribeSpotInstanceRequests", "ec2:DescribeVolumes", "ecs:ListClusters", "ecs:ListContainerInstances", "elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTags", "elasticloadbalancing:DescribeTargetGroups", "elasticloadbalancing:DescribeTargetHealth", "kms:DescribeKey", "pricing:GetProducts", "savingsplans:DescribeSavingsPlans"]
      Resource = "*"
    },
  ]
  actor = [
    {
      Sid       = "ActInScope"
      Effect    = "Allow"
      Action    = ["ec2:StartInstances", "ec2:StopInstances"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*:*:instance/*"
      Condition = { StringEquals = local.on_ours }
    },
    {
      Sid       = "OwnStateTagsInScope"
      Effect    = "Allow"
      Action    = ["ec2:CreateTags", "ec2:DeleteTags"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*:*:instance/*"
      Condition = { StringEquals = local.on_ours, "ForAllValues:StringLike" = { "aws:TagKeys" = ["idle-reaper:*"] }, "Null" = { "aws:TagKeys" = "false" } }
    },
    {
      Sid       = "StartEncryptedDisks"
      Effect    = "Allow"
      Action    = ["kms:CreateGrant"]
      Resource  = "arn:${data.aws_partition.current.partition}:kms:*:*:key/*"
      Condition = { "Bool" = { "kms:GrantIsForAWSResource" = "true" }, "StringLike" = { "kms:ViaService" = ["ec2.*.amazonaws.com", "ec2.*.amazonaws.com.cn"] } }
    },
    {
      Sid       = "NeverMoveIntoScope"
      Effect    = "Deny"
      Action    = ["ec2:CreateTags", "ec2:DeleteTags"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*:*:instance/*"
      Condition = { "ForAnyValue:StringEqualsIgnoreCase" = { "aws:TagKeys" = local.guarded } }
    },
    {
      Sid       = "NeverRemoveEveryTag"
      Effect    = "Deny"
      Action    = ["ec2:DeleteTags"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*:*:instance/*"
      Condition = { "Null" = { "aws:TagKeys" = "true" } }
    },
    {
      Sid      = "NeverLiftAProtectionOrDelete"
      Effect   = "Deny"
      Action   = ["ec2:DeleteSnapshot", "ec2:DeleteVolume", "ec2:DeregisterImage", "ec2:DetachVolume", "ec2:ModifyInstanceAttribute"]
      Resource = "*"
    },
  ]
  snapshots = [
    {
      Sid      = "SnapshotDisks"
      Effect   = "Allow"
      Action   = ["ec2:CreateSnapshot"]
      Resource = "arn:${data.aws_partition.current.partition}:ec2:*:*:volume/*"
    },
    {
      Sid       = "SnapshotsCarryOurTag"
      Effect    = "Allow"
      Action    = ["ec2:CreateSnapshot"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*::snapshot/*"
      Condition = { "Null" = { "aws:RequestTag/idle-reaper:attempt" = "false" } }
    },
    {
      Sid       = "TagOnlyWhileMaking"
      Effect    = "Allow"
      Action    = ["ec2:CreateTags"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*::snapshot/*"
      Condition = { "StringEquals" = { "ec2:CreateAction" = "CreateSnapshot" } }
    },
  ]
  terminate = [
    {
      Sid       = "EndInScope"
      Effect    = "Allow"
      Action    = ["ec2:TerminateInstances"]
      Resource  = "arn:${data.aws_partition.current.partition}:ec2:*:*:instance/*"
      Condition = { StringEquals = local.on_ours }
    },
  ]
  hub = [
    {
      Sid      = "ReachAccounts"
      Effect   = "Allow"
      Action   = ["sts:AssumeRole"]
      Resource = "arn:${data.aws_partition.current.partition}:iam::*:role/${var.role_name}"
    },
  ]
}
