#compdef knnlm
# Completion of knnlm for zsh. The command itself tells what can follow, so that it is always what it has.

local answer line
local -a found
answer=$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
if [[ $answer == :files ]]; then
    _files
else
    for line in "${(@f)answer}"; do
        # What stands before the first colon is the word: one in it is escaped.
        [[ -z $line ]] || found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe knnlm found
fi
