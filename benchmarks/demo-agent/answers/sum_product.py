import math


def sum_product(numbers: list[int]) -> tuple[int, int]:
    return sum(numbers), math.prod(numbers)
