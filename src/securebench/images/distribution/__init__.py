"""A small client of the OCI distribution protocol: an image from a registry, checked as it comes."""

from securebench.images.distribution.model import BlobSink, Descriptor, Fetched, Platform

__all__ = ["BlobSink", "Descriptor", "Fetched", "Platform"]
