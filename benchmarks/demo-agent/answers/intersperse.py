def intersperse(numbers: list[int], delimiter: int) -> list[int]:
    mixed = [delimiter] * max(0, 2 * len(numbers) - 1)
    mixed[::2] = numbers
    return mixed
