# Wrong on purpose: the name is bound to a new list, and the caller's stays as it was.
def move_zeros(numbers: list[int]) -> None:
    numbers = [n for n in numbers if n] + [n for n in numbers if not n]
