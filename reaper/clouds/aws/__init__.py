"""AWS. Importing this loads no SDK; boto3 comes with the first call."""

from reaper.clouds.aws.cloud import AwsCloud

__all__ = ["AwsCloud"]
