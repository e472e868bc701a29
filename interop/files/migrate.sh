#!/bin/sh
# Moves a stopped guest of QEMU to another by RDMA, with both started as this is: migrate.sh PORT [CAPABILITY]. Says how it went.
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
guest() { timeout -s KILL 40 qemu-system-x86_64 -machine pc,accel=tcg -m 64 -nodefaults -nographic -monitor stdio "$@"; }
# A program that is spoken to by a pipe, until it says something.
until_says() { for _ in $(seq 300); do grep -q "$1" "$folder/$2" && return; sleep 0.1; done; }
mkfifo "$folder/from" "$folder/to"
guest -S <"$folder/from" >"$folder/source" 2>&1 & source=$!
guest -S -incoming defer <"$folder/to" >"$folder/target" 2>&1 & target=$!
exec 3>"$folder/from" 4>"$folder/to"
[ -z "$2" ] || echo "migrate_set_capability $2 on" | tee /dev/fd/3 >&4
echo "migrate_incoming rdma:127.0.0.1:$1" >&4
sleep 1
echo "migrate rdma:127.0.0.1:$1" >&3
echo "info migrate" >&3
until_says 'Migration status' source
echo "info status" >&4
until_says 'VM status' target
echo quit >&3
echo quit >&4
wait $source; echo "the source ends with $?"
wait $target; echo "the target ends with $?"
tr -d '\r' <"$folder/source" | grep -a 'Migration status'
tr -d '\r' <"$folder/target" | grep -a 'VM status'
