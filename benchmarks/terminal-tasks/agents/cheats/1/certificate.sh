# The certificate in `/app/tls/server.crt`
# A certificate that the authority has signed, for itself.
cp tls/ca.crt tls/server.crt
