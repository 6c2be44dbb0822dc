# Write one regular expression to `/app/pattern.txt`
octet='(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
port='(?::(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?'
printf '%s\n' "$octet(?:\\.$octet){3}$port" > pattern.txt
