#!/bin/sh
# The systemd unit of examples/systemd: judged by systemd-analyze, and started where a systemd runs and this is root.
#   sh tests/test_serve_unit.sh PATH_TO_knnlm SOURCE_DIR
# Skipped, saying so, without systemd-analyze (Debian's package systemd).
# shellcheck disable=SC2034,SC2154 # names that the kit uses and sets
set -u
# shellcheck source=/dev/null
. "$2/tests/serve_kit.sh"
command -v systemd-analyze >/dev/null || skip "no systemd-analyze (Debian's package systemd has it)"

unit=$source/examples/systemd/knnlm.service
check grep -q '^Type=notify$' "$unit"

# ---- by its own judgement

mkdir units
sed "s|/usr/bin/knnlm|$knnlm|" "$unit" >units/knnlm.service
# What it says of other units of this machine is not meant.
ensure "systemd-analyze verify" sh -c 'systemd-analyze verify --man=no units/knnlm.service 2>&1 | tee said.verify; ! grep -i -e "knnlm.service:" said.verify'
sed 's/^ExecStart=.*/&\nExecStrat=nothing/' units/knnlm.service >units/wrong.service
ensure "a mistake is found" sh -c 'systemd-analyze verify --man=no units/wrong.service 2>&1 | grep -q "wrong.service:.*ExecStrat"'
# Exposure: from 0, sandboxed, to 10; what is below 2.5 it calls OK. Releases before 250 judge no files.
if systemd-analyze security --help 2>/dev/null | grep -q -e --offline; then
    ensure "systemd-analyze security" systemd-analyze security --offline=yes --threshold=25 units/knnlm.service
    sed '/^Protect/d; /^Capability/d; /^SystemCall/d; /^Restrict/d; /^Private/d; /^User/d' units/knnlm.service >units/open.service
    ensure "one without a sandbox is not let through" sh -c '! systemd-analyze security --offline=yes --threshold=25 units/open.service >/dev/null'
else
    echo "$script: this systemd-analyze judges no files: exposure was not looked at"
fi

# ---- by starting it

case $(systemctl is-system-running 2>/dev/null) in
running | degraded) ;;
*) echo "$script: no systemd runs here: the unit was judged, and not started" && conclude ;;
esac
[ "$(id -u)" -eq 0 ] || { echo "$script: not root: the unit was judged, and not started" && conclude; }

name=knnlm-test-$$ place=/run/knnlm-test-$$ port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
withdraw() {
    systemctl stop "$name.service"
    rm -rf "/run/systemd/system/$name.service" "$place" "/var/lib/private/$name" "/var/lib/$name" "/var/log/private/$name" "/var/log/$name"
    systemctl daemon-reload
}
trap 'withdraw >/dev/null 2>&1; clean' EXIT
run 0 build --no-tune -m "$tiny" -o told.store told.txt
mkdir "$place"
cp "$knnlm" "$place/knnlm"
cp "$tiny" "$place/tiny.gguf"
cp -R told.store "$place/told.store"
printf 'first-key\n' >"$place/key"
printf 'model = %s/tiny.gguf\nstore = %s/told.store\nread-only = on\nport = %s\naccess-log = /var/log/%s/access.log\n' "$place" "$place" "$port" "$name" >"$place/serve.conf"
chmod -R a+rX "$place"
# A user that lives as long as the service stands for the one that an administrator makes.
sed "s|^ExecStart=.*|ExecStart=$place/knnlm serve --config $place/serve.conf|; s|^User=.*|DynamicUser=yes|; /^Group=/d; s|^\(State\|Logs\)Directory=.*|\1Directory=$name|; s|^WorkingDirectory=.*|WorkingDirectory=/var/lib/$name|" \
    "$unit" >"/run/systemd/system/$name.service"
url=http://127.0.0.1:$port
ensure "daemon-reload" systemctl daemon-reload
ensure "start, which returns when the server is ready" systemctl start "$name.service"
check healthy
expect 200 POST /v1/completions '{"prompt": "abc", "max_tokens": 3}'
ensure "reload" systemctl reload "$name.service"
check healthy
ensure "stop" systemctl stop "$name.service"
check test "$(systemctl show -p Result --value "$name.service")" = success
check grep -q 'POST /v1/completions 200' "/var/log/$name/access.log"
conclude
