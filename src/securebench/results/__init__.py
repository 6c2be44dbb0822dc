"""Results: records, their journal, redaction and summary."""
