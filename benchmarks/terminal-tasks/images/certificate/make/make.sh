# Make an authority and a server's certificate that has run out. Keys are made anew by each build.
set -eu
mkdir -p /app/tls /usr/local/share/certificate-task
cd /app/tls
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 7300 -keyout ca.key -out ca.crt \
    -subj "/CN=Example Test CA" -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr \
    -subj "/CN=old.example.test" 2>/dev/null
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days -1 -out server.crt 2>/dev/null
openssl pkey -in server.key -pubout -out /usr/local/share/certificate-task/server.pub
cp ca.crt /usr/local/share/certificate-task/ca.crt
rm -f server.csr ca.srl
chmod 644 ca.key server.key
