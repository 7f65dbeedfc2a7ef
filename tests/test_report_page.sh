#!/bin/sh
# The report's page in a browser: it draws, answers clicks and keys, runs nothing that its texts hold, asks the network
# for nothing. Skipped without Chromium, which nothing else needs.
#   test_report_page.sh KNNLM SOURCES, test_report beside knnlm
# shellcheck disable=SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
set -e
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no Chromium"

browse() {
    HOME=$work timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1280,900 \
        --virtual-time-budget=5000 --dump-dom "file://$1" 2>"$work/log"
}

echo '<p>ready' >"$work/probe.html"
browse "$work/probe.html" | grep -q ready || skip "$chromium does not run here"

"$(dirname "$knnlm")/test_report" "$work/plain.html"
# What goes wrong is noted from the first line on; the questions come after the page's own script.
awk -v driver="$source/tests/report_page.js" '
    { print }
    /^<head>$/ { print "<script>var wrong = []; addEventListener(\"error\", e => wrong.push(e.message || \"\" + e.target.src), true); addEventListener(\"securitypolicyviolation\", e => wrong.push(e.blockedURI))</script>" }
    /^<\/script>$/ { ended++ }
    /^<\/script>$/ && ended == 2 { print "<script>"; while ((getline line < driver) > 0) print line; print "</script>" }
' "$work/plain.html" >"$work/page.html"
browse "$work/page.html" >"$work/dom.html"
verdict=$(sed -n 's/.*<pre id="verdict">\(.*\)<\/pre>.*/\1/p' "$work/dom.html")
echo "${verdict:-no verdict: $(cat "$work/log")}"
case $verdict in passed*) ;; *) exit 1 ;; esac
