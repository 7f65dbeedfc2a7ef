#!/bin/sh
# The report's page in a browser: it draws, answers clicks and keys, runs nothing that its texts hold, asks the network
# for nothing. Skipped without Chromium, which nothing else needs.
#   test_report_page.sh KNNLM SOURCES, in the folder that has test_report
set -eu
sources=$2
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

browse() {
    HOME=$folder timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1280,900 \
        --virtual-time-budget=5000 --dump-dom "file://$1" 2>"$folder/log"
}

echo '<p>ready' >"$folder/probe.html"
browse "$folder/probe.html" | grep -q ready || { echo "$chromium does not run here" && exit 77; }

./test_report "$folder/plain.html"
# What goes wrong is noted from the first line on; the questions come after the page's own script.
awk -v driver="$sources/tests/report_page.js" '
    { print }
    /^<head>$/ { print "<script>var wrong = []; addEventListener(\"error\", e => wrong.push(e.message || \"\" + e.target.src), true); addEventListener(\"securitypolicyviolation\", e => wrong.push(e.blockedURI))</script>" }
    /^<\/script>$/ { ended++ }
    /^<\/script>$/ && ended == 2 { print "<script>"; while ((getline line < driver) > 0) print line; print "</script>" }
' "$folder/plain.html" >"$folder/page.html"
browse "$folder/page.html" >"$folder/dom.html"
verdict=$(sed -n 's/.*<pre id="verdict">\(.*\)<\/pre>.*/\1/p' "$folder/dom.html")
echo "${verdict:-no verdict: $(cat "$folder/log")}"
case $verdict in passed*) ;; *) exit 1 ;; esac
