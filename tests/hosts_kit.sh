#!/bin/sh
# Three machines out of one, for scripts that have a folder `work`: network namespaces joined by a bridge, each with a name and a
# disk (`work`/disk) of its own. Whoever calls hosts_up calls hosts_down at the end, whatever happens.
# shellcheck disable=SC2034,SC2154 # names of the scripts
hosts=kn$(($$ % 100000)) # interfaces have short names
hosts_net=10.$((77 + $$ % 100)).$(($$ / 100 % 250))

# What is there of them; under set -e too.
hosts_down() {
    for i in 1 2 3; do
        { ip netns pids "$hosts-$i" | xargs -r kill -9; } 2>/dev/null || :
        ip netns del "$hosts-$i" 2>/dev/null || :
        ip link del "$hosts-v$i" 2>/dev/null || :
    done
    ip link del "$hosts-b" 2>/dev/null || :
}

hosts_connect() {
    ip link add "$hosts-b" type bridge && ip link set "$hosts-b" up || return 1
    for i in 1 2 3; do
        ip netns add "$hosts-$i" || return 1
        ip link add "$hosts-v$i" type veth peer name eth0 netns "$hosts-$i" || return 1
        ip link set "$hosts-v$i" master "$hosts-b" up || return 1
        ip -n "$hosts-$i" addr add "$hosts_net.$i/24" dev eth0 || return 1
        ip -n "$hosts-$i" link set eth0 up || return 1
        ip -n "$hosts-$i" link set lo up || return 1
    done
}

# hosts_up: false, with a line in `hosts_why`, where they cannot be made. hosts_launch is then what stands before a command of three
# ranks, one on each, which speak TCP alone. on HOST COMMAND... runs it there; agent HOST LINE the same of a line for a shell, which
# is how mpirun starts something on another host.
hosts_up() {
    hosts_why="namespaces are root's to make"
    [ "$(id -u)" -eq 0 ] || return 1
    hosts_why="no ip (iproute2)"
    command -v ip >/dev/null || return 1
    hosts_connect >"$work/hosts.out" 2>&1 || { hosts_why="no namespaces can be made here: $(head -n 1 "$work/hosts.out")" && return 1; }
    hosts_why="no namespace of names and mounts can be made here"
    unshare --uts --mount true 2>/dev/null || return 1
    mkdir "$work/disk" "$work/disk-1" "$work/disk-2" "$work/disk-3"
    cat >"$work/on" <<END
#!/bin/sh
i=\${1##*.}
shift
exec ip netns exec $hosts-\$i unshare --uts --mount sh -c '
    mount --bind $work/disk-\$0 $work/disk && hostname node\$0 && exec "\$@"' "\$i" "\$@"
END
    cat >"$work/agent" <<END
#!/bin/sh
host=\$1
shift
exec $work/on "\$host" sh -c "\$*"
END
    chmod +x "$work/on" "$work/agent"
    "$work/on" "$hosts_net.2" true >"$work/hosts.out" 2>&1 || { hosts_why="nothing runs in a namespace: $(head -n 1 "$work/hosts.out")" && return 1; }
    hosts_launch="$work/on $hosts_net.1 mpirun -q -n 3 --host $hosts_net.1:1,$hosts_net.2:1,$hosts_net.3:1 --mca plm_rsh_agent $work/agent \
        --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0"
}
