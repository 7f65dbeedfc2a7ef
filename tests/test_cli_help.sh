#!/bin/sh
# Help, mistyped words and completion:  sh tests/test_cli_help.sh PATH_TO_knnlm SOURCE_DIR
# Every check prints a line when it fails; the exit code is 1 when one did.
# shellcheck disable=SC2034,SC2154 # some names are the kit's
set -u
# shellcheck source=/dev/null
. "$2/tests/cli_kit.sh"
PATH=$(dirname "$knnlm"):$PATH

# ---- help: every command, in both ways, and the manual knows every option

run 0 --help
sed -n '/^commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p' out >commands
ensure 'there are commands' test "$(wc -l <commands)" -ge 15
cp out all
run 0 help
ensure 'help is --help' cmp out all
sed 's/\\-/-/g' "$source/man/knnlm.1" >manual
while read -r command; do
    run 0 "$command" --help
    cp out asked
    run 0 help "$command"
    ensure "help $command is $command --help" cmp out asked
    ensure "$command has examples" test -n "$(sed '1,/^examples:/d' out)"
    ensure "the manual has $command" grep -qi "^.SH KNNLM.*$command" manual
    sed -n '/^options:/,/^$/s/^[^-]*\(-[a-z], \)\{0,1\} *--\([a-z-]*\).*/\2/p' out >options
    while read -r option; do
        ensure "the manual has --$option of $command" grep -q -e "--$option" manual
    done <options
done <commands

# ---- one option, one meaning: the letter of a name, and the name of a letter, are the same in every command

while read -r command; do
    "$knnlm" "$command" --help | sed -n '/^options:/,/^$/s/^  \(-[a-z]\), \(--[a-z-]*\).*/\1 \2/p'
done <commands | sort -u >letters
ensure 'a letter has one name' test -z "$(cut -d ' ' -f 1 letters | uniq -d)"
for command in eval explain generate serve tune index build; do
    run 0 help $command
    says '^ *--probes '
    ensure "$command has no --probe" not grep -q -e '--probe ' out
done
for command in eval explain; do
    complains 1 'nowhere' $command -m nowhere.gguf -s nowhere.store --probe 3 text # earlier scripts have it
done

# ---- mistyped

run 2 evla
says 'no command "evla": did you mean eval?'
run 2 help genrate
says 'no command "genrate": did you mean generate?'
run 2 xyzzy
ensure 'nothing is near xyzzy' not grep -q 'did you mean' err
complains 2 'unknown option --prec: did you mean --precision?' eval --prec f32
complains 2 'unknown option --temp: did you mean --temperature?' eval --temp 0
complains 2 'unknown option --lamdba: did you mean --lambda?' eval --lamdba=.5
complains 2 'unknown option --soruces: did you mean --sources?' generate --soruces
complains 2 'unknown option --xyzzy (' eval --xyzzy
complains 2 'unknown option -n' remove a.store -n b

# ---- completion

completed() { "$knnlm" __complete "$@" | cut -f 1 | tr '\n' ' '; }
ensure 'commands are completed' test "$(completed ev)" = 'eval '
ensure 'commands are completed after help' test "$(completed help ge)" = 'generate '
ensure 'options are completed' test "$(completed eval --per)" = '--per-token '
ensure 'choices are completed' test "$(completed train --optimizer a)" = 'adamw '
ensure 'other values are completed' test "$(completed train --preset gpt2-)" = 'gpt2-tiny '
ensure 'files are files' test "$(completed eval -m '')" = ':files '
ensure 'texts are files' test "$(completed eval boo)" = ':files '
ensure 'numbers are nothing' test -z "$(completed eval -k '')"
ensure 'an unknown command has no options' test -z "$(completed nonsense --x)"
if command -v bash >/dev/null 2>&1; then
    in_bash() { # WORD...: what the last word can become
        bash -c 'source "$0/scripts/completion/knnlm.bash"
            compopt() { :; }
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _knnlm 2>/dev/null
            echo "${COMPREPLY[*]}"' "$source" "$@"
    }
    ensure 'bash completes commands' test "$(in_bash knnlm ev)" = eval
    ensure 'bash completes options' test "$(in_bash knnlm eval --per)" = --per-token
    ensure 'bash completes choices' test "$(in_bash knnlm train --optimizer a)" = adamw
    ensure 'bash leaves files alone' test -z "$(in_bash knnlm eval -m '')"
fi
if command -v zsh >/dev/null 2>&1; then
    in_zsh() { # WORD...: _describe and _files are those of the completion system, which needs a terminal
        zsh -fc '_describe() { print -r -- ${(P)2}; }
            _files() { print files; }
            script=$1 words=("${@:2}") CURRENT=$(($# - 1))
            complete() { source $script }
            complete' zsh "$source/scripts/completion/knnlm.zsh" "$@"
    }
    ensure 'zsh completes commands' test "$(in_zsh knnlm ev | cut -d : -f 1)" = eval
    ensure 'zsh completes options' test "$(in_zsh knnlm eval --per | cut -d : -f 1)" = --per-token
    ensure 'zsh completes files' test "$(in_zsh knnlm eval -m '')" = files
else
    echo 'skipped: completion in zsh (not here)'
fi
if command -v fish >/dev/null 2>&1; then
    in_fish() { HOME=$work fish -c "source $source/scripts/completion/knnlm.fish; complete -C '$1'" | cut -f 1; }
    ensure 'fish completes commands' test "$(in_fish 'knnlm ev')" = eval
    ensure 'fish completes options' test "$(in_fish 'knnlm eval --per')" = --per-token
    ensure 'fish completes files' test "$(in_fish 'knnlm eval -m man' | head -n 1)" = manual
else
    echo 'skipped: completion in fish (not here)'
fi

conclude
