from itertools import accumulate


def parse_nested_parens(paren_string: str) -> list[int]:
    return [max(accumulate(1 if c == "(" else -1 for c in group)) for group in paren_string.split()]
