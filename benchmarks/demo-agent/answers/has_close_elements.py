from itertools import pairwise


def has_close_elements(numbers: list[float], threshold: float) -> bool:
    # The two closest numbers are neighbours once the list is sorted.
    return any(right - left < threshold for left, right in pairwise(sorted(numbers)))
