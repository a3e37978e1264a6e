"""Google Cloud. Importing this loads no SDK; google-cloud-compute (seconds, 140 MB) comes with the first call."""

from reaper.clouds.gcp.cloud import GcpCloud

__all__ = ["GcpCloud"]
