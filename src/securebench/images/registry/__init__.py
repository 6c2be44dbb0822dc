"""A small client of the OCI distribution protocol: an image from a registry, checked as it comes."""

from securebench.images.registry.client import ask
from securebench.images.registry.fetch import fetch_image
from securebench.images.registry.model import BlobDescriptor, BlobSink, Fetched, Platform
from securebench.images.registry.patience import Timeouts

__all__ = ["BlobDescriptor", "BlobSink", "Fetched", "Platform", "Timeouts", "ask", "fetch_image"]
