# The network stays, the host goes.
s/^([0-9]+\.[0-9]+)\.[0-9]+\.[0-9]+ /\1.0.0 /
s/^([0-9a-f]+:[0-9a-f]+):[0-9a-f:]+ /\1:: /
# Whoever had logged in.
s/^([^ ]+ [^ ]+) [^ ]+ /\1 - /
# Mail addresses, wherever they are.
s/[^] "?&=/]+(@|%40)[A-Za-z0-9.-]+/someone/g
