import statistics


# Wrong on purpose: this is the standard deviation.
def mean_absolute_deviation(numbers: list[float]) -> float:
    return statistics.pstdev(numbers)
