# Completion of knnlm for bash. The command itself tells what can follow, so that it is always what it has.

_knnlm() {
    local answer
    answer=$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ "$answer" = :files ]; then
        compopt -o default # names of files
        COMPREPLY=()
    else
        mapfile -t COMPREPLY < <(cut -f 1 <<<"$answer")
        [ -n "$answer" ] || COMPREPLY=()
    fi
}

complete -F _knnlm knnlm
