# Wrong on purpose: this is the largest of the last two numbers, not of all numbers so far.
def rolling_max(numbers: list[int]) -> list[int]:
    return [max(numbers[max(0, i - 1) : i + 1]) for i in range(len(numbers))]
