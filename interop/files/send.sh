# Sends a line by nc, over an rsocket, to the port that is given.
LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so
export LD_PRELOAD
echo "every byte of the message" | nc.openbsd -N 127.0.0.1 "$1"
