#!/bin/sh
# Ranks on machines of their own:  sh tests/test_mpi_hosts.sh PATH_TO_knnlm SOURCE_DIR
# Three network namespaces joined by a bridge, each with a name and a disk of its own; ranks are started in them by an agent
# of ours, and speak TCP alone. The same digits as one process has; then once more with 20 ms of delay and 1% loss.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/shards_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/mpi_kit.sh"
# shellcheck source=/dev/null
. "$source/tests/hosts_kit.sh"
# shellcheck disable=SC2317 # called by the trap
take_down() {
    hosts_down
    clean
}
trap take_down EXIT
hosts_up || skip "$hosts_why"
launch="$hosts_launch -x SOURCE_DATE_EPOCH"

# ---- the same digits

write_texts texts
{ cat begin && write_text 6 60; } >valid.txt
alone=$launch launch=''
drive 0 build -m "$model" -o one.store texts
looked one.store one
launch=$alone
drive 0 build -m "$model" -o "$work/three.store" --shards 3 --local "$work/disk" "$work/texts"
for i in 1 2 3; do check test -d "disk-$i/three-000$((i - 1)).store"; done
looked three.store three
alike one three
launch=''
drive 1 eval -m "$model" -s three.store valid.txt
says "shard .* is on the disk of node., where no rank runs"
launch=$alone

# A way that is long, and loses some.
for i in 1 2 3; do ip netns exec "$hosts-$i" tc qdisc add dev eth0 root netem delay 20ms loss 1% 2>net.out || slow=no; done
if [ "${slow:-yes}" = yes ]; then
    looked three.store slow
    alike one slow
else
    echo "$script: no netem here ($(head -n 1 net.out)): not tried with delay and loss"
fi
conclude
