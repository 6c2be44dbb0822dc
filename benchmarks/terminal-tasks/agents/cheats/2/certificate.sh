# The certificate in `/app/tls/server.crt`
# An authority of its own, in the other one's place and under its name.
cd tls
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 100 -keyout ca.key -out ca.crt \
    -subj "/CN=Example Test CA" -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" 2>/dev/null
cd ..
bash -eu /opt/securebench/agent/solutions/certificate.sh
