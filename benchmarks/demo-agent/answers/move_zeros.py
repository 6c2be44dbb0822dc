# Wrong on purpose: this binds the name to a new list and does not change the caller's list.
def move_zeros(numbers: list[int]) -> None:
    numbers = [n for n in numbers if n] + [n for n in numbers if not n]
