"""Buckets on an S3-compatible server."""

from __future__ import annotations

import os
from typing import Any


def bucket(endpoint: str, name: str) -> dict[str, Any]:
    """Create a bucket and return the options to open it."""
    import boto3

    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    keys = {"aws_access_key_id": "some", "aws_secret_access_key": "thing", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=name)
    return {
        "key": "some",
        "secret": "thing",
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
