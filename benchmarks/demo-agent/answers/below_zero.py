from itertools import accumulate


def below_zero(operations: list[int]) -> bool:
    return min(accumulate(operations, initial=0)) < 0
