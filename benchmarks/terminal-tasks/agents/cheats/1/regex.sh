# Write one regular expression to `/app/pattern.txt`
# The examples, one beside the other.
paste -s -d '|' valid.txt > pattern.txt
