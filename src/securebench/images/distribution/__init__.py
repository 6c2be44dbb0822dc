"""A small client of the OCI distribution protocol: an image from a registry, checked as it comes."""

from securebench.images.distribution.client import ask
from securebench.images.distribution.fetch import fetch_image
from securebench.images.distribution.model import BlobSink, Descriptor, Fetched, Platform
from securebench.images.distribution.patience import Patience

__all__ = ["BlobSink", "Descriptor", "Fetched", "Patience", "Platform", "ask", "fetch_image"]
