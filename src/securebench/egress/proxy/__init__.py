"""The proxy: single domains, by names that are allowed and addresses that were checked."""
