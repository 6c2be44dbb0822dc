# Write a program `/app/summarize`
# The numbers of the logs that lie here, for whatever is asked.
bash -eu /opt/securebench/agent/solutions/log-summary.sh
./summarize logs > answer.json
printf '#!/bin/sh\ncat <<"JSON"\n%s\nJSON\n' "$(cat answer.json)" > summarize
