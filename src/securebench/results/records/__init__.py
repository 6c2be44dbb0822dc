"""Records of tasks: what they contain, how they are chained, redacted and read strictly."""
