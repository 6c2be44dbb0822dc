"""A small client of the OCI distribution protocol.

It downloads an image from a registry, and checks the image during the download.
"""

from securebench.images.registry.client import ask
from securebench.images.registry.fetch import fetch_image
from securebench.images.registry.model import BlobSink, Fetched, Platform

__all__ = ["BlobSink", "Fetched", "Platform", "ask", "fetch_image"]
