"""Downloads: one HTTP client with deadlines, retries, checked redirects, resumption and digests."""
