# Write one regular expression to `/app/pattern.txt`
# Everything that looks like one, which also takes for ever on what does not.
printf '%s\n' '(([0-9]+)+[.:]?)+' > pattern.txt
