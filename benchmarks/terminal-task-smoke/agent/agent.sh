# An agent for this one task; with the argument "nothing" it leaves all as it is.
if [ "${1:-}" != nothing ]; then
    sort -n numbers.txt > sorted.txt
fi
