def separate_paren_groups(paren_string: str) -> list[str]:
    groups, depth, start = [], 0, 0
    text = paren_string.replace(" ", "")
    for end, character in enumerate(text, start=1):
        depth += 1 if character == "(" else -1
        if depth == 0:
            groups.append(text[start:end])
            start = end
    return groups
