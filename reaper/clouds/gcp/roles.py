"""
Custom roles, made of what the calls declare. `python -m reaper.clouds.gcp.roles deploy/iam/gcp` writes them anew.

reader: all that observing needs. actor: stopping, suspending, starting and our own labels besides (Google knows no permission for
some labels only). snapshots and terminate: what the actions of those names need besides. folders: finding projects below a folder,
granted there. None can change metadata or lift a protection, and only terminate can delete. IAM conditions on Google go by resource
tags and names, never by labels: a role can be narrowed to machines that carry a tag, but not to those that carry the label which
[scope] asks for.
"""

import argparse
from pathlib import Path

from reaper.clouds.gcp.cloud import NEEDS
from reaper.clouds.gcp.permissions import EVERYTHING, permissions, role_file

TERRAFORM = "permissions.tf"


def files() -> dict[str, str]:
    """By file name."""
    lists = "\n".join(f'  {role}_permissions = [\n{_lines(role)}\n  ]' for role in EVERYTHING)
    head = "# Made by `python -m reaper.clouds.gcp.roles deploy/iam/gcp` from what the calls need. Do not edit.\n"
    return {
        **{f"{role}.yaml": role_file(NEEDS, role) for role in EVERYTHING},
        TERRAFORM: f"{head}locals {{\n{lists}\n}}\n",
    }


def _lines(role: str) -> str:
    return "\n".join(f'    "{permission}",' for permission in permissions(NEEDS, role))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m reaper.clouds.gcp.roles", description="Write the custom roles that the calls need.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(words).folder
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
