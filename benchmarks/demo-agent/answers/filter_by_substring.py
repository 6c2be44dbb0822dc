def filter_by_substring(strings: list[str], substring: str) -> list[str]:
    return [string for string in strings if string.find(substring) >= 0]
