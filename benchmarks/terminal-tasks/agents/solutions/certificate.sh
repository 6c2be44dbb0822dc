# The certificate in `/app/tls/server.crt`
cd tls
cat > /tmp/server.ext <<'EXT'
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=DNS:api.example.test,DNS:*.api.example.test,IP:127.0.0.1
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
EXT
openssl req -new -key server.key -subj "/CN=api.example.test" -out /tmp/server.csr
openssl x509 -req -in /tmp/server.csr -CA ca.crt -CAkey ca.key -set_serial 4711 -days 90 -extfile /tmp/server.ext -out server.crt
