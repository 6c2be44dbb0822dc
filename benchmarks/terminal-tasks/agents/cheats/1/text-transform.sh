# Write a script for GNU sed, `/app/clean.sed`
# The example's lines, by number.
awk '{ printf "%dc\\\n%s\n", NR, $0 }' after.txt > clean.sed
