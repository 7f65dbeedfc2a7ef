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
command -v ip >/dev/null || skip "no ip (iproute2)"
[ "$(id -u)" -eq 0 ] || skip "namespaces are root's to make"
name=kn$$
case $name in ??????????*) name=kn$(($$ % 100000)) ;; esac
net=10.$((77 + $$ % 100)).$(($$ / 100 % 250))

# ---- three machines

# shellcheck disable=SC2317 # called by the trap
take_down() {
    for i in 1 2 3; do
        ip netns pids "$name-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
        ip netns del "$name-$i" 2>/dev/null
        ip link del "$name-v$i" 2>/dev/null
    done
    ip link del "$name-b" 2>/dev/null
    clean
}
trap take_down EXIT
put_up() {
    ip link add "$name-b" type bridge && ip link set "$name-b" up || return 1
    for i in 1 2 3; do
        ip netns add "$name-$i" || return 1
        ip link add "$name-v$i" type veth peer name eth0 netns "$name-$i" || return 1
        ip link set "$name-v$i" master "$name-b" up || return 1
        ip -n "$name-$i" addr add "$net.$i/24" dev eth0 || return 1
        ip -n "$name-$i" link set eth0 up || return 1
        ip -n "$name-$i" link set lo up || return 1
    done
}
put_up >net.out 2>&1 || skip "no namespaces can be made here: $(head -n 1 net.out)"
unshare --uts --mount true 2>/dev/null || skip "no namespace of names and mounts can be made here"

# on HOST COMMAND...: there, where `disk` is its own. agent HOST LINE: the same of a line for a shell, which is how mpirun
# starts something on another host.
mkdir disk disk-1 disk-2 disk-3
cat >on <<END
#!/bin/sh
i=\${1##*.}
shift
exec ip netns exec $name-\$i unshare --uts --mount sh -c '
    mount --bind $work/disk-\$0 $work/disk && hostname node\$0 && exec "\$@"' "\$i" "\$@"
END
cat >agent <<END
#!/bin/sh
host=\$1
shift
exec $work/on "\$host" sh -c "\$*"
END
chmod +x on agent
./on "$net.2" ping -c 1 -W 2 "$net.3" >net.out 2>&1 || ./on "$net.2" true || skip "nothing runs in a namespace: $(head -n 1 net.out)"
launch="./on $net.1 mpirun -q -n 3 --host $net.1:1,$net.2:1,$net.3:1 --mca plm_rsh_agent $work/agent --mca btl tcp,self \
    --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 -x SOURCE_DATE_EPOCH"

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
for i in 1 2 3; do ip netns exec "$name-$i" tc qdisc add dev eth0 root netem delay 20ms loss 1% 2>net.out || slow=no; done
if [ "${slow:-yes}" = yes ]; then
    looked three.store slow
    alike one slow
else
    echo "$script: no netem here ($(head -n 1 net.out)): not tried with delay and loss"
fi
conclude
